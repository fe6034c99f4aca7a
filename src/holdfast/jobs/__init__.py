"""Jobs: named sets of runs that end together and may grow while they run. Every function here is awaited.

`holdfast.jobs.sync` has the same functions, blocking. Both use the configured database or, inside a task,
the database that the task was claimed from. `Jobs(client)` and `AsyncJobs(client)` have the same methods on your own
client.

    job = await create_job("nightly", tasks=[
        {"entrypoint": "load", "kwargs": {"day": "2026-01-31"}, "key": "load"},
        {"entrypoint": "report", "depends_on": ["load"]},
    ])

A task may add tasks to its job while it runs (`add_task_to_current_job`), map a task over a dataset (`map`) and have
another run once after all of them (`collect`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.jobs import sync as sync
    from holdfast.jobs.awaited import (
        add_task_to_current_job,
        add_task_to_job,
        cancel_job,
        collect,
        create_job,
        deregister_worker,
        get_job,
        get_task,
        health_check,
        list_jobs,
        list_workers,
        map,  # noqa: A004 - the source's word
        metrics,
        register_worker,
        remove_with_job,
        retry_failed_tasks,
        wait_for_job,
        worker_heartbeat,
    )
    from holdfast.jobs.facades import AsyncJobs, Jobs
    from holdfast.jobs.handles import Job, JobTask, MapHandle
    from holdfast.jobs.results import Results
    from holdfast.jobs.sync import get_current_job_id
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

# The modules that define these names; the functions are in `awaited`. They are imported when a name is first used: each
# child process imports the modules of tasks, and most of those need only View.
_HOMES = {
    "AsyncJobs": "facades",
    "Job": "handles",
    "JobTask": "handles",
    "Jobs": "facades",
    "MapHandle": "handles",
    "Results": "results",
    "View": "views",
    "get_current_job_id": "sync",
}


def __getattr__(name: str) -> Any:
    if name == "sync":
        return import_module("holdfast.jobs.sync")
    if name not in __all__:
        raise AttributeError(f"module 'holdfast.jobs' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"holdfast.jobs.{_HOMES.get(name, 'awaited')}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "sync"])
