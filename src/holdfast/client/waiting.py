"""How a client waits for a run: it polls, frequently at first and then less and less often."""

from __future__ import annotations

import time
from collections.abc import Iterator

from holdfast.domain.errors import BadInput, WaitTimeout

FIRST = 0.01
LONGEST = 0.5
GROWTH = 1.3


def pauses(timeout: float | None) -> Iterator[float]:
    """Return the pause before each read, until the timeout. There is none before the first."""
    yield 0.0
    ends = None if timeout is None else time.monotonic() + timeout
    pause = FIRST
    while ends is None or (left := ends - time.monotonic()) > 0:
        yield pause if ends is None else min(pause, max(left, 0.001))
        pause = min(pause * GROWTH, LONGEST)


def timed_out(run_id: str, timeout: float | None, why: str | None = None) -> WaitTimeout:
    return WaitTimeout(f"run {run_id} had not ended after {timeout:g} s; it continues" + (f": {why}" if why else ""))


def in_transaction(what: str) -> BadInput:
    return BadInput(
        f"cannot wait for {what} in your transaction: it may be part of the transaction, and then it starts only after "
        "the commit. Commit first, then wait on the client itself"
    )
