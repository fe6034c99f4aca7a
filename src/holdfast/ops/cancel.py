"""Cancel: a pending run ends immediately; a running one is asked to stop and can then only end CANCELLED."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.domain.errors import HoldfastError, RunEnded
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.ops.conclude import conclude
from holdfast.ops.history import get
from holdfast.sql import events, leases, ready
from holdfast.sql.statement import Op

ROUNDS = 10


class Cancellation(NamedTuple):
    """The run, CANCELLED or RUNNING with a cancel request; and whether this call ended it."""

    run: RunRecord
    ended: bool


def cancel(run_id: str, reason: str) -> Op[RunRecord]:
    """Cancel a run. The returned run is CANCELLED, or RUNNING with a cancel request."""
    return (yield from cancellation(run_id, reason)).run


def cancellation(run_id: str, reason: str) -> Op[Cancellation]:
    """Like `cancel`, and also return whether this call ended the run. Of several concurrent calls, only one does.

    The run may move to another table between two statements, so they are repeated until one of them finds it.
    """
    withdrawn = False
    for _ in range(ROUNDS):
        ended = yield from ready.withdraw([run_id], reason)
        if ended:
            yield from conclude(ended)
            withdrawn = True
        elif (yield from leases.request_stop(run_id, reason)):
            yield from events.cancel_requested(run_id, reason)
        run = yield from get(run_id)
        if run.status is Status.CANCELLED or run.cancel_requested_at is not None:
            return Cancellation(run, withdrawn)
        if run.status.final:
            raise RunEnded(f"run {run_id} already ended {run.status}; it cannot be cancelled")
    raise HoldfastError(f"run {run_id} changed state {ROUNDS} times while it was being cancelled; try again")
