"""A mark that a child sets and its worker reads: which run has begun, and when.

It lies in memory that both share, so it costs the child no system call and is readable when the child is stuck or dead.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

_MARK = struct.Struct("=qd")


class Mark:
    """Index of the last run that began, and the monotonic time when it did; -1 before the first.

    Once it is closed it stays as it was.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _MARK.size)
        self._last: tuple[int, float] | None = None

    def set(self, index: int, at: float) -> None:
        _MARK.pack_into(self._memory, 0, index, at)

    def get(self) -> tuple[int, float]:
        if self._last is not None:
            return self._last
        index, at = _MARK.unpack_from(self._memory)
        return index, at

    def close(self) -> None:
        self._last = self.get()
        self._memory.close()


def make_mark() -> tuple[int, Mark]:
    """A descriptor to hand to a child, and its mark."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("holdfast-mark", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, _MARK.size)
    mark = Mark(descriptor)
    mark.set(-1, 0.0)
    return descriptor, mark
