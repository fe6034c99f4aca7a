"""A mark that a child sets and its worker reads: which run has begun, and when, and which endings it has yet to send.

It lies in memory that both share, so it costs the child no system call and is readable when the child is stuck or dead.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

_MARK = struct.Struct("=qd")
_LENGTH = struct.Struct("=q")
_KEPT = _MARK.size + _LENGTH.size
SIZE = 1 << 16


class Mark:
    """Index of the last run that began, and the monotonic time when it did; -1 before the first.

    Once it is closed it stays as it was.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)
        self._last: tuple[int, float] | None = None
        self._end = _KEPT

    def set(self, index: int, at: float) -> None:
        _MARK.pack_into(self._memory, 0, index, at)

    def get(self) -> tuple[int, float]:
        if self._last is not None:
            return self._last
        index, at = _MARK.unpack_from(self._memory)
        return index, at

    def keep(self, text: bytes) -> bool:
        """Keep a line until it is sent. False if there is no room."""
        end = self._end + len(text) + 1
        if end > SIZE:
            return False
        self._memory[self._end : end] = text + b"\n"
        self._end = end
        # Last: whoever dies in between has kept nothing of it.
        _LENGTH.pack_into(self._memory, _MARK.size, end - _KEPT)
        return True

    def forget(self) -> None:
        """All that was kept has been sent."""
        if self._end > _KEPT:
            self._end = _KEPT
            _LENGTH.pack_into(self._memory, _MARK.size, 0)

    def kept(self) -> list[bytes]:
        """The lines that were not sent, or whose sender died before it could say so."""
        (length,) = _LENGTH.unpack_from(self._memory, _MARK.size)
        return bytes(self._memory[_KEPT : _KEPT + length]).splitlines()

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
    os.truncate(descriptor, SIZE)
    mark = Mark(descriptor)
    mark.set(-1, 0.0)
    return descriptor, mark
