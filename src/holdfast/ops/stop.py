"""Stop: a job takes nothing more, what is pending of it ends, and what runs is asked to stop.

Each step is an operation of its own, in a transaction of its own, so that a job of any size is stopped in bounded ones;
and each can be done again, so that anybody can go on where somebody was cut off. Only when `stop_some` finds nothing
left that could start is the stop acknowledged.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.domain.errors import HoldfastError, JobEnded
from holdfast.domain.jobs import JobRecord
from holdfast.domain.states import Status
from holdfast.ops.conclude import conclude
from holdfast.ops.jobs import get_job
from holdfast.sql import ready, stopping
from holdfast.sql.statement import Op
from holdfast.sql.stopping import Stopping

AT_ONCE = 1000
ROUNDS = 10
# What an ending says of a run that was stopped with its job.
STOPPED = '{"stopped": true}'


def stop_job(job_id: str, outcome: Status, reason: str) -> Op[JobRecord]:
    """Mark a job as stopping, so that nothing can be added. Raises JobEnded if it ended in another way.

    A job that had ended when it was to be marked may be reopened before it is read, so it is marked again until it
    either has ended or is being stopped.
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
    """What a step of stopping did: whether that was all, and the workers whose runs were asked to stop."""

    done: bool
    workers: list[str]


def stop_some(job_id: str, reason: str) -> Op[Stopped]:
    """End pending runs of a job, a bounded number, and ask its running ones to stop."""
    held = yield from stopping.hold(job_id, AT_ONCE)
    if held:
        ended = yield from ready.withdraw(held, reason, STOPPED)
        yield from conclude(ended)
        return Stopped(False, [])
    workers = yield from stopping.ask_to_stop(job_id, reason)
    return Stopped(not (yield from stopping.startable(job_id)), workers)


def jobs_to_stop(limit: int = 100) -> Op[list[Stopping]]:
    """Jobs whose time is over, and jobs whose stopping was cut off."""
    return (yield from stopping.to_stop(limit))
