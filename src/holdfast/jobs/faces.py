"""The faces of the jobs API: on a client of one's own, blocking or awaited, made of one table of calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast import ops
from holdfast.client.asynchronous import AsyncAsking
from holdfast.client.blocking import Asking
from holdfast.client.methods import signed
from holdfast.client.waiting import in_transaction, pauses
from holdfast.domain.errors import WaitTimeout
from holdfast.domain.values import RunRecord
from holdfast.jobs import calls, health, mapping, resources, workers
from holdfast.jobs.ambient import running
from holdfast.jobs.handles import Job
from holdfast.jobs.here import Here
from holdfast.jobs.procedures import Procedure, follow, follow_async
from holdfast.jobs.results import revived

P = ParamSpec("P")
T = TypeVar("T")


def blocking(call: Callable[Concatenate[Here, P], Procedure[T]]) -> Callable[Concatenate[Jobs, P], T]:
    def method(self: Jobs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return follow(call(self.here(), *args, **kwargs), self.client.perform)

    return signed(method, call)


def awaiting(call: Callable[Concatenate[Here, P], Procedure[T]]) -> Callable[Concatenate[AsyncJobs, P], Awaitable[T]]:
    async def method(self: AsyncJobs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await follow_async(call(self.here(), *args, **kwargs), self.client.perform)

    return signed(method, call)


class Jobs:
    """The jobs API on a blocking client: `Jobs(client).create_job(...)`; with `client.on(connection)`, in the caller's
    transaction."""

    def __init__(self, client: Asking) -> None:
        self.client = client

    def here(self) -> Here:
        return Here(self.client.settings, self.client, self.load_tasks, self.load_result, running())

    def load_tasks(self, job_id: str, after: str | None, limit: int) -> list[RunRecord]:
        return self.client.perform(partial(ops.list_tasks, job_id, after, limit))

    def load_result(self, run_id: str) -> Any:
        return revived(self.client.result(run_id))

    create_job = blocking(calls.create_job)
    get_job = blocking(calls.get_job)
    list_jobs = blocking(calls.list_jobs)
    cancel_job = blocking(calls.cancel_job)
    retry_failed_tasks = blocking(calls.retry_failed_tasks)
    add_task_to_job = blocking(calls.add_task_to_job)
    add_task_to_current_job = blocking(calls.add_task_to_current_job)
    get_task = blocking(calls.get_task)
    map = blocking(mapping.map_dataset)
    collect = blocking(mapping.collect)
    remove_with_job = blocking(resources.remove_with_job)
    register_worker = blocking(workers.register_worker)
    worker_heartbeat = blocking(workers.worker_heartbeat)
    deregister_worker = blocking(workers.deregister_worker)
    list_workers = blocking(workers.list_workers)
    health_check = blocking(health.health_check)
    metrics = blocking(health.metrics)

    def wait_for_job(self, job: object, timeout: float | None = None) -> Job:
        """Return the job once it has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
        if self.client.borrowed:
            raise in_transaction(f"job {calls.job_id_of(job)}")
        found = self.get_job(job)
        for pause in pauses(timeout):
            if found.status.final:
                return found
            time.sleep(pause)
            found = self.get_job(job)
        return ended(found, timeout)


class AsyncJobs:
    """The jobs API on an asynchronous client, awaited.

    What is read later on, such as `job.tasks`, is read by a blocking client for the same database.
    """

    def __init__(self, client: AsyncAsking) -> None:
        self.client = client

    def here(self) -> Here:
        later = Later(self.client)
        return Here(self.client.settings, self.client, later.load_tasks, later.load_result, running())

    create_job = awaiting(calls.create_job)
    get_job = awaiting(calls.get_job)
    list_jobs = awaiting(calls.list_jobs)
    cancel_job = awaiting(calls.cancel_job)
    retry_failed_tasks = awaiting(calls.retry_failed_tasks)
    add_task_to_job = awaiting(calls.add_task_to_job)
    add_task_to_current_job = awaiting(calls.add_task_to_current_job)
    get_task = awaiting(calls.get_task)
    map = awaiting(mapping.map_dataset)
    collect = awaiting(mapping.collect)
    remove_with_job = awaiting(resources.remove_with_job)
    register_worker = awaiting(workers.register_worker)
    worker_heartbeat = awaiting(workers.worker_heartbeat)
    deregister_worker = awaiting(workers.deregister_worker)
    list_workers = awaiting(workers.list_workers)
    health_check = awaiting(health.health_check)
    metrics = awaiting(health.metrics)

    async def wait_for_job(self, job: object, timeout: float | None = None) -> Job:
        """Return the job once it has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
        if self.client.borrowed:
            raise in_transaction(f"job {calls.job_id_of(job)}")
        found = await self.get_job(job)
        for pause in pauses(timeout):
            if found.status.final:
                return found
            await asyncio.sleep(pause)
            found = await self.get_job(job)
        return ended(found, timeout)


class Later:
    """Reads what a handle is asked for outside of any await, with a blocking client that is opened when needed."""

    def __init__(self, client: AsyncAsking) -> None:
        self._client = client

    def _jobs(self) -> Jobs:
        from holdfast.jobs.ambient import client_for

        return Jobs(client_for(self._client.settings, self._client.runtime.database_url))

    def load_tasks(self, job_id: str, after: str | None, limit: int) -> list[RunRecord]:
        return self._jobs().load_tasks(job_id, after, limit)

    def load_result(self, run_id: str) -> Any:
        return self._jobs().load_result(run_id)


def ended(found: Job, timeout: float | None) -> Job:
    """The job, if it has ended; else the wait for it is over."""
    if found.status.final:
        return found
    raise WaitTimeout(f"job {found.id} ({found.name}) had not ended after {timeout:g} s; it goes on")
