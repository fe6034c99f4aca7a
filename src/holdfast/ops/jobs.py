"""Reading jobs, the checks before anything is added to one, and resources that are removed after it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.domain.errors import JobEnded, JobNotFound, LeaseLost, RunCancelled
from holdfast.domain.jobs import JobRecord
from holdfast.domain.states import Status
from holdfast.domain.values import AttemptRef, RunRecord
from holdfast.ops.history import get
from holdfast.sql import attempts, jobs, leases, resources, runs
from holdfast.sql.resources import Resource
from holdfast.sql.statement import Op, as_operation

ready_queues = as_operation(jobs.ready_queues)
resources_to_remove = as_operation(resources.to_remove)


def get_job(job_id: str) -> Op[JobRecord]:
    job = yield from jobs.read(job_id)
    if job is None:
        raise JobNotFound(f"no job has the id {job_id}")
    return job


def show_job(job_id: str) -> Op[JobRecord]:
    """Return a job with the reason for its status: the first task that failed or was cancelled."""
    job = _with_reason((yield from get_job(job_id)))
    if job.status is Status.FAILED and job.stop_outcome is None:
        blamed = yield from jobs.first_blamed(job_id)
        return replace(job, reason=f"{job.reason}; the first is {blamed}") if blamed else job
    return job


def list_jobs(status: str | None, before: str, limit: int, name: str | None = None) -> Op[list[JobRecord]]:
    """Return jobs older than `before`, newest first."""
    return [_with_reason(job) for job in (yield from jobs.listing(status, before, limit, name))]


def _with_reason(job: JobRecord) -> JobRecord:
    """Return the job with a sentence about its failed tasks, unless it was cancelled and has its own reason."""
    if job.status is not Status.FAILED or job.stop_outcome is not None:
        return job
    counts = [(job.failed, "failed"), (job.cancelled, f"{'was' if job.cancelled == 1 else 'were'} cancelled")]
    words = [f"{count} {how}" for count, how in counts if count]
    (amount, first), *others = (word.split(" ", 1) for word in words)
    more = "".join(f", {' '.join(other)}" for other in others)
    return replace(job, reason=f"{amount} of {job.total} task{'s' * (job.total != 1)} {first}{more}")


def list_tasks(job_id: str, after: str | None, limit: int) -> Op[list[RunRecord]]:
    """Return the runs of a job ordered by id, which is the order of creation: those created with the job first."""
    ids = yield from jobs.task_ids(job_id, after, limit)
    found = {run.id: run for run in (yield from _with_workers((yield from runs.read_many(ids))))}
    return [found[id_] for id_ in ids if id_ in found]


def get_task(run_id: str) -> Op[RunRecord]:
    """Return a run with the worker that holds it, or held it last."""
    (run,) = yield from _with_workers([(yield from get(run_id))])
    return run


def _with_workers(found: Sequence[RunRecord]) -> Op[list[RunRecord]]:
    ended = [run.id for run in found if run.lease_owner is None and run.attempt_count]
    workers = (yield from attempts.last_workers(ended)) if ended else {}
    return [run._replace(worker_id=run.lease_owner or workers.get(run.id)) for run in found]


def grow(job_id: str, amount: int) -> Op[None]:
    """Count added runs. Raises JobEnded if nothing can be added to the job."""
    if not (yield from jobs.grow(job_id, amount)):
        job = yield from get_job(job_id)
        state = f"ended {job.status}" if job.status.final else f"is being stopped ({job.reason})"
        raise JobEnded(f"job {job_id} ({job.name}) {state}; nothing can be added to it")


def hold_attempt(ref: AttemptRef) -> Op[None]:
    """Keep this attempt from ending before the transaction does. Raises LeaseLost or RunCancelled."""
    stopping = yield from leases.hold(ref)
    if stopping is None:
        raise LeaseLost(f"attempt {ref.number} of run {ref.run_id} no longer holds its lease, so it cannot add runs")
    if stopping:
        raise RunCancelled(f"run {ref.run_id} is being cancelled, so it cannot add runs")


def add_resource(job_id: str, resource: str, keep_for_retry: bool) -> Op[None]:
    """Record a resource to be removed after a job has ended. Raises JobEnded if it already has."""
    if not (yield from resources.add(job_id, resource, keep_for_retry)):
        job = yield from get_job(job_id)
        raise JobEnded(f"job {job_id} ({job.name}) ended {job.status}; remove the resource yourself")


def resource_removed(resource: Resource, error: str | None = None) -> Op[None]:
    """Record that a resource was removed, or why it could not be."""
    if error is None:
        yield from resources.removed(resource.job_id, resource.name)
    else:
        yield from resources.not_removed(resource.job_id, resource.name, error)
