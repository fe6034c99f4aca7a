"""Postpone: a pending run starts no earlier than a given time."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.domain.errors import HoldfastError, RunEnded
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.ops.history import get
from holdfast.sql import events, waiting
from holdfast.sql.statement import Op

ROUNDS = 10


def postpone(run_id: str, until: datetime | timedelta, by: str) -> Op[RunRecord]:
    """Make a pending run wait until this time, and for its dependencies as before. A time in the past makes it due.

    A pending run may move between ready and waiting between two statements, so they are repeated until one finds it.
    """
    for _ in range(ROUNDS):
        postponed = yield from waiting.postpone(run_id, until)
        if postponed:
            yield from events.postponed(run_id, by)
        run = yield from get(run_id)
        if postponed:
            return run
        if run.status is not Status.PENDING:
            raise RunEnded(f"run {run_id} is {run.status}; only a pending run can be postponed")
    raise HoldfastError(f"run {run_id} changed state {ROUNDS} times while it was being postponed; try again")
