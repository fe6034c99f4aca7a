"""The jobs API, blocking: the same functions as in `holdfast.jobs`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.client.blocking import Client
from holdfast.client.shared import client_for
from holdfast.domain.context import find_run
from holdfast.domain.errors import ConfigurationError, DatabaseUnreachable, SchemaMismatch
from holdfast.jobs import workers
from holdfast.jobs.facades import Jobs
from holdfast.jobs.handles import Job, JobTask, MapHandle
from holdfast.jobs.results import Results
from holdfast.jobs.views import View
from holdfast.runtime.settings import load

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


def client() -> Client:
    """A client for the database of the current run, or else for the configured database."""
    run = find_run()
    return client_for(load(), run.link.database_url if run is not None else None)


def get_current_job_id() -> str | None:
    """Return the id of the job that the calling task belongs to; None outside of a job."""
    run = find_run()
    return run.job_id if run is not None else None


def _on_current_client(method: Callable[Concatenate[Jobs, P], T]) -> Callable[P, T]:
    """Turn a method of `Jobs` into a function that uses the client of the current context."""

    def function(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(Jobs(client()), *args, **kwargs)

    declared = inspect.signature(method)
    parameters = list(declared.parameters.values())[1:]
    function.__name__, function.__doc__ = method.__name__, method.__doc__
    function.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


create_job = _on_current_client(Jobs.create_job)
get_job = _on_current_client(Jobs.get_job)
list_jobs = _on_current_client(Jobs.list_jobs)
cancel_job = _on_current_client(Jobs.cancel_job)
retry_failed_tasks = _on_current_client(Jobs.retry_failed_tasks)
add_task_to_job = _on_current_client(Jobs.add_task_to_job)
add_task_to_current_job = _on_current_client(Jobs.add_task_to_current_job)
get_task = _on_current_client(Jobs.get_task)
map = _on_current_client(Jobs.map)  # noqa: A001 - the source's word
collect = _on_current_client(Jobs.collect)
remove_with_job = _on_current_client(Jobs.remove_with_job)
register_worker = _on_current_client(Jobs.register_worker)
worker_heartbeat = _on_current_client(Jobs.worker_heartbeat)
deregister_worker = _on_current_client(Jobs.deregister_worker)
list_workers = _on_current_client(Jobs.list_workers)
metrics = _on_current_client(Jobs.metrics)
wait_for_job = _on_current_client(Jobs.wait_for_job)


def health_check() -> dict[str, Any]:
    """Return `{"healthy": bool, "checks": {"database", "workers", "stale_tasks"}}`; a failed check is not an error."""
    try:
        return Jobs(client()).health_check()
    except (ConfigurationError, DatabaseUnreachable, SchemaMismatch):
        return workers.unhealthy()
