"""The jobs API, blocking: the same functions as in `holdfast.jobs`, made of the same operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.client.methods import signed
from holdfast.domain.errors import ConfigurationError, DatabaseUnreachable, SchemaMismatch
from holdfast.jobs import ambient, calls, get_current_job_id, health, mapping, resources, workers
from holdfast.jobs.faces import Jobs
from holdfast.jobs.handles import Job, JobTask, MapHandle
from holdfast.jobs.here import Here
from holdfast.jobs.procedures import Procedure, follow
from holdfast.jobs.results import Results
from holdfast.jobs.views import View

__all__ = [
    "Job",
    "JobTask",
    "Jobs",
    "MapHandle",
    "Results",
    "View",
    "add_task_to_current_job",
    "add_task_to_job",
    "cancel_job",
    "collect",
    "create_job",
    "deregister_worker",
    "get_current_job_id",
    "get_job",
    "get_task",
    "health_check",
    "list_jobs",
    "list_workers",
    "map",
    "metrics",
    "register_worker",
    "remove_with_job",
    "retry_failed_tasks",
    "wait_for_job",
    "worker_heartbeat",
]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(call: Callable[Concatenate[Here, P], Procedure[T]]) -> Callable[P, T]:
    """A call on whatever client there is."""

    def function(*args: P.args, **kwargs: P.kwargs) -> T:
        jobs = Jobs(ambient.client())
        return follow(call(jobs.here(), *args, **kwargs), jobs.client.perform)

    return signed(function, call, has_self=False)


create_job = _blocking(calls.create_job)
get_job = _blocking(calls.get_job)
list_jobs = _blocking(calls.list_jobs)
cancel_job = _blocking(calls.cancel_job)
retry_failed_tasks = _blocking(calls.retry_failed_tasks)
add_task_to_job = _blocking(calls.add_task_to_job)
add_task_to_current_job = _blocking(calls.add_task_to_current_job)
get_task = _blocking(calls.get_task)
map = _blocking(mapping.map_dataset)  # noqa: A001 - the source's word
collect = _blocking(mapping.collect)
remove_with_job = _blocking(resources.remove_with_job)
register_worker = _blocking(workers.register_worker)
worker_heartbeat = _blocking(workers.worker_heartbeat)
deregister_worker = _blocking(workers.deregister_worker)
list_workers = _blocking(workers.list_workers)
metrics = _blocking(health.metrics)


def health_check() -> dict[str, Any]:
    """`{"healthy": bool, "checks": {"database", "workers", "stale_tasks"}}`; never raises for what it checks."""
    try:
        return _blocking(health.health_check)()
    except (ConfigurationError, DatabaseUnreachable, SchemaMismatch):
        return health.unhealthy()


def wait_for_job(job: object, timeout: float | None = None) -> Job:
    """Return the job once it has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
    return Jobs(ambient.client()).wait_for_job(job, timeout)
