"""Draining: workers start on runs that wait, and the board tells when each body began."""

from __future__ import annotations

import time

from bench.contender import Contender
from bench.processes import Crew
from bench.rounds import Sample

LOOK_EVERY = 0.005
PATIENCE = 180.0


def checkpoint(contender: Contender) -> None:
    """Begin behind a checkpoint, so that none falls into the middle and pages are logged whole for all alike."""
    with contender.lab.admin() as admin:
        admin.execute("checkpoint")


def begun(contender: Contender, crew: Crew, total: int, first: int = 0, patience: float = PATIENCE) -> list[int]:
    """Wait until the bodies of all these runs have begun; returns the times, in order."""
    board = contender.lab.board
    end = time.monotonic() + patience
    while True:
        # The last one alone is cheap to look at; the others are counted once it is there.
        if board.began[first + total - 1]:
            times = board.times(total, first)
            if len(times) == total:
                return times
        crew.check()
        if time.monotonic() > end:
            raise TimeoutError(f"{len(board.times(total, first))} of {total} began within {patience:g} s")
        time.sleep(0.02)


def finished(contender: Contender, crew: Crew, total: int, patience: float = 60.0) -> int:
    """Wait until the store says that all have ended; returns when that was."""
    end = time.monotonic() + patience
    while contender.unfinished(total):
        crew.check()
        if time.monotonic() > end:
            raise TimeoutError(f"the store of {contender.name} still has unfinished runs after {patience:g} s")
        time.sleep(LOOK_EVERY)
    return time.monotonic_ns()


def drain(contender: Contender, total: int, workers: int = 1, *, verify: bool = True) -> Sample:
    """Runs per second from the first body to the last ending, of `total` runs that wait already."""
    contender.lab.board.clear()
    checkpoint(contender)
    with contender.workers(workers) as crew:
        times = begun(contender, crew, total)
        end = finished(contender, crew, total)
    if verify:
        contender.verify(total)
    tenth = max(2, total // 10)
    return {
        "rate": total / ((end - times[0]) / 1e9),
        "bodies": (total - 1) / ((times[-1] - times[0]) / 1e9),
        "first_tenth": _pace(times[:tenth]),
        "last_tenth": _pace(times[-tenth:]),
    }


def _pace(times: list[int]) -> float:
    return (len(times) - 1) / max(1e-9, (times[-1] - times[0]) / 1e9)


def filled_drain(contender: Contender, total: int, workers: int = 1) -> Sample:
    """Submit `total` runs in bulk to an empty store, then drain them."""
    contender.fresh()
    seconds = contender.submit("bulk", total)
    sample = drain(contender, total, workers)
    return sample | {"lifecycle": total / (seconds + total / sample["rate"])}
