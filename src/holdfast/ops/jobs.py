"""Jobs: make them, let them grow, stop them, reopen them."""

from __future__ import annotations

from holdfast.domain.errors import JobEnded, JobNotFound
from holdfast.domain.jobs import JobRecord
from holdfast.sql import jobs
from holdfast.sql.statement import Op


def get_job(job_id: str) -> Op[JobRecord]:
    job = yield from jobs.read(job_id)
    if job is None:
        raise JobNotFound(f"no job has the id {job_id}")
    return job


def grow(job_id: str, amount: int) -> Op[None]:
    """Count runs that are about to be added. Raises JobEnded if the job takes no more."""
    if not (yield from jobs.grow(job_id, amount)):
        job = yield from get_job(job_id)
        state = f"ended {job.status}" if job.status.final else f"was asked to stop ({job.reason})"
        raise JobEnded(f"job {job_id} ({job.name}) {state}; nothing can be added to it")
