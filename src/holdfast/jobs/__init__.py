"""Jobs: named sets of runs that end together and may grow while they run. Every function here is awaited.

`holdfast.jobs.sync` has the same functions, blocking. Both talk to the database that the settings name, or, inside a
task, to the one the task was claimed from. `Jobs(client)` and `AsyncJobs(client)` offer them on a client of one's own.

    job = await create_job("nightly", tasks=[
        {"entrypoint": "load", "kwargs": {"day": "2026-01-31"}, "key": "load"},
        {"entrypoint": "report", "depends_on": ["load"]},
    ])

A task may add tasks to its job while it runs (`add_task_to_current_job`), map a task over a dataset (`map`) and have
another run once after all of them (`collect`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.client.methods import signed
from holdfast.jobs import ambient, calls, health, mapping, resources, workers
from holdfast.jobs.ambient import running
from holdfast.jobs.faces import AsyncJobs, Jobs
from holdfast.jobs.handles import Job, JobTask, MapHandle
from holdfast.jobs.here import Here
from holdfast.jobs.procedures import Procedure, follow
from holdfast.jobs.results import Results
from holdfast.jobs.views import View

__all__ = [
    "AsyncJobs",
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


def _awaited(call: Callable[Concatenate[Here, P], Procedure[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A call on whatever client there is, in a thread: it works in any loop, and leaves nothing behind in it."""

    def perform(*args: P.args, **kwargs: P.kwargs) -> T:
        jobs = Jobs(ambient.client())
        return follow(call(jobs.here(), *args, **kwargs), jobs.client.perform)

    async def function(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(perform, *args, **kwargs)

    return signed(function, call, has_self=False)


create_job = _awaited(calls.create_job)
get_job = _awaited(calls.get_job)
list_jobs = _awaited(calls.list_jobs)
cancel_job = _awaited(calls.cancel_job)
retry_failed_tasks = _awaited(calls.retry_failed_tasks)
add_task_to_job = _awaited(calls.add_task_to_job)
add_task_to_current_job = _awaited(calls.add_task_to_current_job)
get_task = _awaited(calls.get_task)
map = _awaited(mapping.map_dataset)  # noqa: A001 - the source's word
collect = _awaited(mapping.collect)
remove_with_job = _awaited(resources.remove_with_job)
register_worker = _awaited(workers.register_worker)
worker_heartbeat = _awaited(workers.worker_heartbeat)
deregister_worker = _awaited(workers.deregister_worker)
list_workers = _awaited(workers.list_workers)
metrics = _awaited(health.metrics)


async def health_check() -> dict[str, Any]:
    """`{"healthy": bool, "checks": {"database", "workers", "stale_tasks"}}`; never raises for what it checks."""
    from holdfast.jobs import sync

    return await asyncio.to_thread(sync.health_check)


async def wait_for_job(job: object, timeout: float | None = None) -> Job:
    """Return the job once it has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
    from holdfast.client.waiting import pauses
    from holdfast.jobs.faces import ended

    found = await get_job(job)
    for pause in pauses(timeout):
        if found.status.final:
            return found
        await asyncio.sleep(pause)
        found = await get_job(job)
    return ended(found, timeout)


def get_current_job_id() -> str | None:
    """The id of the job whose task is running here; None outside of a job."""
    run = running()
    return run.job_id if run is not None else None
