"""The jobs API, blocking or awaited, built from the verbs. Its client uses a database or the HTTP API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast.client.waiting import in_transaction, pauses
from holdfast.domain.errors import WaitTimeout
from holdfast.domain.jobs import JobRecord
from holdfast.domain.values import RunRecord
from holdfast.jobs import adding, mapping, resources, verbs, workers
from holdfast.jobs.handles import Job, JobTask, LoadResult, LoadTasks
from holdfast.jobs.results import dereferenced
from holdfast.verbs.facades import AsyncCalls, Calls
from holdfast.verbs.subjects import job_id
from holdfast.verbs.verb import Verb, signed

P = ParamSpec("P")
T = TypeVar("T")

PAGE = 1000


class _Handles:
    """Creates handles from records: jobs and tasks that load more data when it is accessed."""

    def __init__(self, load_tasks: LoadTasks, load_result: LoadResult) -> None:
        self._load_tasks = load_tasks
        self._load_result = load_result

    def present(self, answer: Any) -> Any:
        match answer:
            case JobRecord():
                return Job(answer, self._load_tasks, self._load_result)
            case RunRecord():
                return JobTask(answer, self._load_result)
            case list() if answer and isinstance(answer[0], JobRecord):
                return [self.present(record) for record in answer]
            case _:
                return answer


# The types that signatures show for records that are returned as handles.
_HANDLES = {"JobRecord": "Job", "RunRecord": "JobTask", "list[JobRecord]": "list[Job]"}


@overload
def blocking(verb: Verb[P, RunRecord]) -> Callable[Concatenate[Jobs, P], JobTask]: ...
@overload
def blocking(verb: Verb[P, JobRecord]) -> Callable[Concatenate[Jobs, P], Job]: ...
@overload
def blocking(verb: Verb[P, list[JobRecord]]) -> Callable[Concatenate[Jobs, P], list[Job]]: ...
@overload
def blocking(verb: Verb[P, T]) -> Callable[Concatenate[Jobs, P], T]: ...
def blocking(verb: Verb[..., Any]) -> Callable[..., Any]:
    def method(self: Jobs, /, *args: Any, **kwargs: Any) -> Any:
        return self.handles.present(self.client.execute(verb, args, kwargs))

    return signed(method, verb, _HANDLES)


@overload
def awaiting(verb: Verb[P, RunRecord]) -> Callable[Concatenate[AsyncJobs, P], Coroutine[Any, Any, JobTask]]: ...
@overload
def awaiting(verb: Verb[P, JobRecord]) -> Callable[Concatenate[AsyncJobs, P], Coroutine[Any, Any, Job]]: ...
@overload
def awaiting(verb: Verb[P, list[JobRecord]]) -> Callable[Concatenate[AsyncJobs, P], Coroutine[Any, Any, list[Job]]]: ...
@overload
def awaiting(verb: Verb[P, T]) -> Callable[Concatenate[AsyncJobs, P], Coroutine[Any, Any, T]]: ...
def awaiting(verb: Verb[..., Any]) -> Callable[..., Any]:
    async def method(self: AsyncJobs, /, *args: Any, **kwargs: Any) -> Any:
        return self.handles.present(await self.client.execute(verb, args, kwargs))

    return signed(method, verb, _HANDLES)


class Jobs:
    """The jobs API on a blocking client: `Jobs(client).create_job(...)`; with `client.on(connection)`, in the caller's
    transaction. With an `HttpClient`, it can create, read, list, cancel and retry jobs and add tasks; the rest needs a
    database."""

    def __init__(self, client: Calls) -> None:
        self.client = client
        self.handles = _Handles(self.load_tasks, self.load_result)

    def load_tasks(self, job_id: str, after: str | None, limit: int) -> list[RunRecord]:
        """Read tasks of a job, at most `limit` after a task."""
        found: list[RunRecord] = []
        while len(found) < limit:
            room = min(PAGE, limit - len(found))
            page = self.client.execute(verbs.job_tasks, (job_id,), {"cursor": after, "limit": room})
            found += page
            after = page.next_cursor
            if after is None:
                break
        return found

    def load_result(self, run_id: str) -> Any:
        """The result of a task."""
        return dereferenced(self.client.result(run_id))

    create_job = blocking(verbs.create_job)
    get_job = blocking(verbs.get_job)
    list_jobs = blocking(verbs.list_jobs)
    cancel_job = blocking(verbs.cancel_job)
    retry_failed_tasks = blocking(verbs.retry_failed_tasks)
    add_task_to_job = blocking(verbs.add_task_to_job)
    add_task_to_current_job = blocking(adding.add_task_to_current_job)
    get_task = blocking(verbs.get_task)
    map = blocking(mapping.map_dataset)
    collect = blocking(mapping.collect)
    remove_with_job = blocking(resources.remove_with_job)
    register_worker = blocking(workers.register_worker)
    worker_heartbeat = blocking(workers.worker_heartbeat)
    deregister_worker = blocking(workers.deregister_worker)
    list_workers = blocking(workers.list_workers)
    health_check = blocking(workers.health_check)
    metrics = blocking(workers.metrics)

    def wait_for_job(self, job: object, timeout: float | None = None) -> Job:
        """Return the job once it has ended, with any status; raises WaitTimeout after `timeout` seconds."""
        if self.client.borrowed:
            raise in_transaction(f"job {job_id(job)}")
        for pause in pauses(timeout):
            time.sleep(pause)
            found = self.get_job(job)
            if found.status.final:
                return found
        raise timed_out(self.get_job(job), timeout)


class AsyncJobs:
    """The jobs API on an asynchronous client, awaited.

    What is loaded later, such as `job.tasks`, is loaded by a blocking client for the same database or API.
    """

    def __init__(self, client: AsyncCalls) -> None:
        self.client = client
        self.handles = _Handles(
            lambda *args: Jobs(client.blocking_client()).load_tasks(*args),
            lambda run_id: Jobs(client.blocking_client()).load_result(run_id),
        )

    create_job = awaiting(verbs.create_job)
    get_job = awaiting(verbs.get_job)
    list_jobs = awaiting(verbs.list_jobs)
    cancel_job = awaiting(verbs.cancel_job)
    retry_failed_tasks = awaiting(verbs.retry_failed_tasks)
    add_task_to_job = awaiting(verbs.add_task_to_job)
    add_task_to_current_job = awaiting(adding.add_task_to_current_job)
    get_task = awaiting(verbs.get_task)
    map = awaiting(mapping.map_dataset)
    collect = awaiting(mapping.collect)
    remove_with_job = awaiting(resources.remove_with_job)
    register_worker = awaiting(workers.register_worker)
    worker_heartbeat = awaiting(workers.worker_heartbeat)
    deregister_worker = awaiting(workers.deregister_worker)
    list_workers = awaiting(workers.list_workers)
    health_check = awaiting(workers.health_check)
    metrics = awaiting(workers.metrics)

    async def wait_for_job(self, job: object, timeout: float | None = None) -> Job:
        """Return the job once it has ended, with any status; raises WaitTimeout after `timeout` seconds."""
        if self.client.borrowed:
            raise in_transaction(f"job {job_id(job)}")
        return await until_ended(self.get_job, job, timeout)


async def until_ended(get_job: Callable[[object], Awaitable[Job]], job: object, timeout: float | None) -> Job:
    """Read the job until it has ended; raises WaitTimeout after `timeout` seconds."""
    for pause in pauses(timeout):
        await asyncio.sleep(pause)
        found = await get_job(job)
        if found.status.final:
            return found
    raise timed_out(await get_job(job), timeout)


def timed_out(job: Job, timeout: float | None) -> WaitTimeout:
    return WaitTimeout(f"job {job.id} ({job.name}) had not ended after {timeout:g} s; it continues")
