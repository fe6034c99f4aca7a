"""A board in shared memory: for each run, when it was asked for and when its body began.

CLOCK_MONOTONIC is one clock for all processes of a machine, so times written by different ones can be compared.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SLOTS = 2_200_000
VARIABLE = "BENCH_BOARD"


class Board:
    """Two columns of nanoseconds, one slot per run number: `asked`, then `began`. Zero means: not yet."""

    def __init__(self, path: str | Path) -> None:
        descriptor = os.open(path, os.O_RDWR)
        self._memory = mmap.mmap(descriptor, SLOTS * 16)
        os.close(descriptor)
        view = memoryview(self._memory).cast("q")
        self.asked = view[:SLOTS]
        self.began = view[SLOTS:]

    def clear(self) -> None:
        self._memory[:] = bytes(SLOTS * 16)

    def times(self, count: int, first: int = 0) -> list[int]:
        """When the bodies of these runs began, in order of time; those that have not are left out."""
        return sorted(at for at in self.began[first : first + count].tolist() if at)

    def wait(self, number: int, seconds: float, pause: float = 0.0005) -> bool:
        """Wait for a body to begin."""
        end = time.monotonic() + seconds
        while not self.began[number]:
            if time.monotonic() > end:
                return False
            time.sleep(pause)
        return True


_board: Board | None = None


def here() -> Board:
    """The board of the benchmark that started this process."""
    global _board
    if _board is None:
        _board = Board(os.environ[VARIABLE])
    return _board


def body(number: int) -> dict[str, int]:
    """What every contender's task does."""
    here().began[number] = time.monotonic_ns()
    return {"ok": number}


@contextmanager
def new_board() -> Iterator[Path]:
    """Make a board; in memory where the machine has a place for that."""
    memory = Path("/dev/shm")
    directory = memory if os.access(memory, os.W_OK) else None
    descriptor, name = tempfile.mkstemp(prefix="holdfast-bench-", dir=directory)
    try:
        os.truncate(descriptor, SLOTS * 16)
        os.close(descriptor)
        yield Path(name)
    finally:
        Path(name).unlink()
