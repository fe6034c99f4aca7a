"""State that a child, its guardian and its worker share.

It is in memory that all three map, so it costs the child no system call and is readable when the child is stuck or
dead. The child writes which run has begun, and when, and the results that it has not sent yet. The guardian writes
which process runs user code and how that process ended. The worker writes the index from which on no run may begin.
"""

from __future__ import annotations

import mmap
import os
import struct

# Native layout: each aligned number is read and written as a whole. The index that has begun and its time come first,
# then five numbers at these positions.
_BEGUN = struct.Struct("qd")
_LENGTH, _ROUND, _REVOKED, _RUNNER, _STATUS = range(2, 7)
# Then the run that has begun, by its id and the number of its attempt.
_RUN = struct.Struct("36s4xq")
_RUN_AT = 56
_KEPT = 104
_NEVER = 2**63 - 1
_NONE = -1
SIZE = 1 << 16


class SharedState:
    """The shared memory. After it is closed, its last values can still be read."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)
        self._numbers = memoryview(self._memory).cast("q")
        self._last: tuple[int, float] | None = None
        self._last_runner: int | None = None
        self._end = _KEPT
        self._round = 0

    def clear(self) -> None:
        _BEGUN.pack_into(self._memory, 0, _NONE, 0.0)
        for position, value in ((_REVOKED, _NEVER), (_RUNNER, _NONE), (_STATUS, _NONE)):
            self._numbers[position] = value

    def begin(self, index: int, at: float, run_id: str = "", number: int = 0) -> bool:
        """Record that a run begins; return False if it may no longer begin.

        The child writes first and then reads, and the worker revokes first and reads later, so that at least one of
        the two sees what the other wrote.
        """
        _RUN.pack_into(self._memory, _RUN_AT, run_id.encode(), number)
        _BEGUN.pack_into(self._memory, 0, index, at)
        return index < self._numbers[_REVOKED]

    def get(self) -> tuple[int, float]:
        """Return the index of the last run that began and the monotonic time when it did; -1 before the first."""
        if self._last is not None:
            return self._last
        index, at = _BEGUN.unpack_from(self._memory)
        return index, at

    def run(self) -> tuple[str, int] | None:
        """Return the id and the attempt of the last run that began; None before the first."""
        run_id, number = _RUN.unpack_from(self._memory, _RUN_AT)
        return (run_id.decode("ascii", "replace"), number) if number else None

    def revoke(self, index: int | None) -> None:
        """Forbid runs from this index on to begin; None allows all of them again."""
        self._numbers[_REVOKED] = _NEVER if index is None else index

    @property
    def runner(self) -> int | None:
        """The process that runs user code, once it exists."""
        if self._last is not None:
            return self._last_runner
        found = self._numbers[_RUNNER]
        return None if found == _NONE else found

    @runner.setter
    def runner(self, pid: int) -> None:
        self._numbers[_RUNNER] = pid

    @property
    def status(self) -> int | None:
        """The exit status of that process, as returned by `waitpid`; None until its guardian has reaped it."""
        found = self._numbers[_STATUS]
        return None if found == _NONE else found

    @status.setter
    def status(self, status: int) -> None:
        self._numbers[_STATUS] = status

    def keep(self, text: bytes) -> bool:
        """Keep a line until it is sent. Return False if there is no room."""
        end = self._end + len(text) + 1
        if end > SIZE:
            return False
        self._memory[self._end : end] = text + b"\n"
        self._end = end
        # Written last: if the process dies before this, the line does not count as stored.
        self._numbers[_LENGTH] = end - _KEPT
        return True

    def forget(self) -> None:
        """Remove the kept lines: they have been sent."""
        if self._end > _KEPT:
            self._end = _KEPT
            self._round += 1
            self._numbers[_LENGTH] = 0
            self._numbers[_ROUND] = self._round

    def kept(self) -> list[bytes]:
        """Return the lines that were not sent, or that the process may not have sent before it died.

        Return nothing if they are being sent at this moment.
        """
        before = self._kept_state()
        lines = bytes(self._memory[_KEPT : _KEPT + before[1]]).splitlines()
        return lines if self._kept_state() == before else []

    def _kept_state(self) -> tuple[int, int]:
        return self._numbers[_ROUND], self._numbers[_LENGTH]

    def close(self) -> None:
        self._last_runner = self.runner
        self._last = self.get()
        self._numbers.release()
        self._memory.close()


def make_shared_state() -> tuple[int, SharedState]:
    """Return a descriptor to pass to a child, and the state behind it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("holdfast-state", os.MFD_CLOEXEC)
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.truncate(descriptor, SIZE)
        state = SharedState(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    state.clear()
    return descriptor, state
