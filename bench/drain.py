"""Draining: workers start on runs that wait, and the board tells when each body began."""

from __future__ import annotations

import time

from bench.contender import Contender
from bench.processes import Crew, cpu_seconds
from bench.rounds import Sample

LOOK_EVERY = 0.005
START_SECONDS = 60.0
TIMEOUT = 180.0


def checkpoint(contender: Contender) -> None:
    """Begin behind a checkpoint, so that none falls into the middle and pages are logged whole for all alike."""
    with contender.lab.admin() as admin:
        admin.execute("checkpoint")


def begun(contender: Contender, crew: Crew, total: int, first: int = 0, timeout: float = TIMEOUT) -> list[int]:
    """Wait until the bodies of all these runs have begun; returns the times, in order."""
    board = contender.lab.board
    end = time.monotonic() + timeout
    while True:
        # The last one alone is cheap to look at; the others are counted once it is there.
        if board.began[first + total - 1]:
            times = board.times(total, first)
            if len(times) == total:
                return times
        crew.check()
        if time.monotonic() > end:
            raise TimeoutError(f"{len(board.times(total, first))} of {total} began within {timeout:g} s")
        time.sleep(0.02)


def finished(contender: Contender, crew: Crew, total: int, timeout: float = 60.0) -> int:
    """Wait until the store says that all have ended; returns when that was."""
    end = time.monotonic() + timeout
    while contender.unfinished(total):
        crew.check()
        if time.monotonic() > end:
            raise TimeoutError(f"the store of {contender.name} still has unfinished runs after {timeout:g} s")
        time.sleep(LOOK_EVERY)
    return time.monotonic_ns()


def first_body(contender: Contender, crew: Crew) -> None:
    """Wait until the work has begun."""
    if not contender.lab.board.wait(0, START_SECONDS, 0.002):
        crew.check()
        raise TimeoutError(f"the workers of {contender.name} began nothing within {START_SECONDS:g} s")


def drain(contender: Contender, total: int, workers: int = 1, *, verify: bool = True) -> Sample:
    """Runs per second from the first body to the last ending, of `total` runs that wait already.

    The microseconds on a core per run, workers' and server's, are steadier than any rate on a shared machine.
    """
    contender.lab.board.clear()
    checkpoint(contender)
    with contender.workers(workers) as crew:
        first_body(contender, crew)
        worked, served = cpu_seconds(crew.pids()), cpu_seconds(contender.backends())
        times = begun(contender, crew, total)
        end = finished(contender, crew, total)
        worked, served = cpu_seconds(crew.pids()) - worked, cpu_seconds(contender.backends()) - served
    if verify:
        contender.verify(total)
    tenth = max(2, total // 10)
    return {
        "rate": total / ((end - times[0]) / 1e9),
        "bodies": (total - 1) / ((times[-1] - times[0]) / 1e9),
        "first_tenth": _pace(times[:tenth]),
        "last_tenth": _pace(times[-tenth:]),
        "worker_us": worked / total * 1e6,
        "server_us": served / total * 1e6,
    }


def _pace(times: list[int]) -> float:
    return (len(times) - 1) / max(1e-9, (times[-1] - times[0]) / 1e9)


def filled_drain(contender: Contender, total: int, workers: int = 1) -> Sample:
    """Submit `total` runs in bulk to an empty store, then drain them."""
    contender.fresh()
    seconds = contender.submit("bulk", total)
    sample = drain(contender, total, workers)
    return sample | {"lifecycle": total / (seconds + total / sample["rate"])}
