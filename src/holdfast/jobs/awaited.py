"""The jobs API, awaited: a thread makes each call."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from holdfast.jobs import sync
from holdfast.jobs.facades import until_ended
from holdfast.jobs.handles import Job

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(call: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a blocking function awaitable, in any event loop."""

    async def function(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(call, *args, **kwargs)

    function.__name__, function.__doc__ = call.__name__, call.__doc__
    function.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
    return function


create_job = _in_thread(sync.create_job)
get_job = _in_thread(sync.get_job)
list_jobs = _in_thread(sync.list_jobs)
cancel_job = _in_thread(sync.cancel_job)
retry_failed_tasks = _in_thread(sync.retry_failed_tasks)
add_task_to_job = _in_thread(sync.add_task_to_job)
add_task_to_current_job = _in_thread(sync.add_task_to_current_job)
get_task = _in_thread(sync.get_task)
map = _in_thread(sync.map)  # noqa: A001 - the source's word
collect = _in_thread(sync.collect)
remove_with_job = _in_thread(sync.remove_with_job)
register_worker = _in_thread(sync.register_worker)
worker_heartbeat = _in_thread(sync.worker_heartbeat)
deregister_worker = _in_thread(sync.deregister_worker)
list_workers = _in_thread(sync.list_workers)
metrics = _in_thread(sync.metrics)
health_check = _in_thread(sync.health_check)


async def wait_for_job(job: object, timeout: float | None = None) -> Job:
    """Return the job once it has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
    return await until_ended(get_job, job, timeout)
