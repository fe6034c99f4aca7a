"""A mock model: it takes time, reports progress, and fails as often as requested."""

from __future__ import annotations

from hashlib import sha256
from time import monotonic, sleep
from typing import Annotated, Any

from holdfast.domain.canonical import canonicalize
from holdfast.domain.context import RunContext, current_run
from holdfast.domain.errors import Fatal
from holdfast.domain.parameters import Within
from holdfast.domain.tasks import task

LONGEST_NAP = 0.05


class SimulatedFailure(Exception):
    """The requested failure of the mock."""


@task("mock")
def mock(
    seconds: Annotated[float, Within(0, 86_400)] = 1.0,
    steps: Annotated[int, Within(1, 1_000_000)] = 10,
    fail_times: Annotated[int, Within(0)] = 0,
    fatal: bool = False,
    payload: Any = None,
) -> dict[str, Any]:
    """Work for `seconds` in `steps`. The first `fail_times` attempts fail half-way, without a retry if `fatal`."""
    run = current_run()
    failing = run.attempt <= fail_times
    started = monotonic()
    for step in range(1, steps + 1):
        _nap_until(started + seconds * step / steps, run, step - 1, steps)
        run.progress(step, steps, unit="steps")
        if failing and step * 2 >= steps:
            raise _failure(run.attempt, fail_times, fatal)
    return {
        "run_id": str(run.id),
        "inputs": run.parameters,
        "metrics": {"runtime_seconds": round(monotonic() - started, 3), "objective": _objective(run.parameters)},
        "notes": "simulated",
    }


def _nap_until(end: float, run: RunContext, done: int, steps: int) -> None:
    """Sleep in short intervals, so that cancellation is noticed in between."""
    while (left := end - monotonic()) > 0:
        sleep(min(left, LONGEST_NAP))
        run.progress(done, steps, unit="steps")


def _failure(attempt: int, fail_times: int, fatal: bool) -> Exception:
    message = f"simulated failure {attempt} of {fail_times}"
    return Fatal(message) if fatal else SimulatedFailure(message)


def _objective(inputs: Any) -> float:
    """Return a number from 0 to 1 that depends only on the inputs."""
    _, digest = canonicalize(inputs)
    return round(int.from_bytes(sha256(digest.encode()).digest()[:4]) / 2**32, 4)
