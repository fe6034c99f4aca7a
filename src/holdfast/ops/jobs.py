"""Jobs as they are read, and the two things that whoever adds to one has to ask first."""

from __future__ import annotations

from holdfast.domain.errors import JobEnded, JobNotFound, LeaseLost, RunCancelled
from holdfast.domain.jobs import JobRecord
from holdfast.domain.values import AttemptRef, RunRecord
from holdfast.sql import jobs, leases, runs
from holdfast.sql.statement import Op


def get_job(job_id: str) -> Op[JobRecord]:
    job = yield from jobs.read(job_id)
    if job is None:
        raise JobNotFound(f"no job has the id {job_id}")
    return job


def list_jobs(status: str | None, before: str, limit: int, name: str | None = None) -> Op[list[JobRecord]]:
    """Jobs newest first, older than `before`."""
    return (yield from jobs.listing(status, before, limit, name))


def list_tasks(job_id: str, after: str | None, limit: int) -> Op[list[RunRecord]]:
    """The runs of a job in order of their ids: those made with it first, as they were listed."""
    ids = yield from jobs.task_ids(job_id, after, limit)
    found = {run.id: run for run in (yield from runs.read_many(ids))}
    return [found[id_] for id_ in ids if id_ in found]


def ready_queues(job_id: str) -> Op[list[str]]:
    """The queues in which runs of this job are ready."""
    return (yield from jobs.ready_queues(job_id))


def grow(job_id: str, amount: int) -> Op[int]:
    """Count runs that are added; tells how many there were before. Raises JobEnded if the job takes no more."""
    total = yield from jobs.grow(job_id, amount)
    if total is None:
        job = yield from get_job(job_id)
        state = f"ended {job.status}" if job.status.final else f"was asked to stop ({job.reason})"
        raise JobEnded(f"job {job_id} ({job.name}) {state}; nothing can be added to it")
    return total - amount


def hold_attempt(ref: AttemptRef) -> Op[None]:
    """Keep this attempt from ending before the transaction does. Raises LeaseLost or RunCancelled if it may not add."""
    stopping = yield from leases.hold(ref)
    if stopping is None:
        raise LeaseLost(f"attempt {ref.number} of run {ref.run_id} no longer holds its lease; it can add nothing")
    if stopping:
        raise RunCancelled(f"run {ref.run_id} was asked to stop; it can add nothing")
