"""Stop: nothing can be added to a job, its pending runs end, and its running runs are cancelled.

Each step is a separate operation in its own transaction, so that a job of any size is stopped in bounded steps. Each
step can be repeated, so that another process can continue after an interruption. The stop is acknowledged only when
`stop_some` finds no run that could still start.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.domain.errors import HoldfastError, JobEnded
from holdfast.domain.jobs import JobRecord
from holdfast.domain.states import Status
from holdfast.ops.conclude import conclude
from holdfast.ops.jobs import get_job
from holdfast.sql import ready, stopping
from holdfast.sql.statement import Op, as_operation

AT_ONCE = 1000
ROUNDS = 10
# Stored with a run that was stopped together with its job.
STOPPED = '{"stopped": true}'

jobs_to_stop = as_operation(stopping.to_stop)


def stop_job(job_id: str, outcome: Status, reason: str) -> Op[JobRecord]:
    """Mark a job as stopping, so that nothing can be added. Raises JobEnded if it has ended with another status.

    A job that had already ended may be reopened before it is read, so this repeats until it has ended or is stopping.
    """
    for _ in range(ROUNDS):
        yield from stopping.stop(job_id, outcome, reason)
        job = yield from get_job(job_id)
        if job.finished_at is not None and job.status != outcome:
            raise JobEnded(f"job {job_id} ({job.name}) already ended {job.status}; it cannot be cancelled")
        if job.finished_at is not None or job.cancel_requested_at is not None:
            return job
    raise HoldfastError(f"job {job_id} was reopened {ROUNDS} times while it was being cancelled; try again")


class Stopped(NamedTuple):
    """The effect of one step: whether it was the last, and the workers whose runs have to stop."""

    done: bool
    workers: list[str]


def stop_some(job_id: str, reason: str) -> Op[Stopped]:
    """End a bounded number of a job's pending runs; when there are none left, cancel its running ones."""
    held = yield from stopping.hold(job_id, AT_ONCE)
    if held:
        ended = yield from ready.withdraw(held, reason, STOPPED)
        yield from conclude(ended)
        return Stopped(False, [])
    workers = yield from stopping.request_stop(job_id, reason)
    return Stopped(not (yield from stopping.startable(job_id)), workers)
