"""The calls of all clients, made from the verbs: one class of blocking calls, one of asynchronous calls.

A client is one of them with an `execute`: a client of the database performs the verb's plan, and a client of the API
sends the request that the verb declares. Runs are returned as handles (`handles`), which make further calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import orjson

from holdfast.domain.records import ResultRecord
from holdfast.runtime.settings import Settings
from holdfast.verbs import counters, history, outcomes, runs, submissions
from holdfast.verbs import queues as queue_verbs
from holdfast.verbs import subscriptions as subscription_verbs
from holdfast.verbs import workers as worker_verbs
from holdfast.verbs.handles import AsyncRun, Run, awaiting, blocking
from holdfast.verbs.verb import Verb

T = TypeVar("T")


class Calls:
    """The blocking calls that every client has."""

    settings: Settings
    borrowed = False
    """Whether the connection and its transaction belong to the caller."""

    def execute(self, verb: Verb[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
        """Make a call and return its answer."""
        raise NotImplementedError

    def load_result(self, found: ResultRecord) -> bytes:
        """The bytes of a result."""
        raise NotImplementedError

    submit = blocking(submissions.submit)
    submit_many = blocking(submissions.submit_many)
    get = blocking(runs.get)
    list = blocking(runs.list_runs)
    cancel = blocking(outcomes.cancel)
    postpone = blocking(outcomes.postpone)
    retry = blocking(outcomes.retry)
    events = blocking(history.events)
    logs = blocking(history.logs)
    attempts = blocking(history.attempts)
    why = blocking(history.why)
    workers = blocking(worker_verbs.workers)
    drain_worker = blocking(worker_verbs.drain_worker)
    queues = blocking(queue_verbs.queues)
    pause_queue = blocking(queue_verbs.pause_queue)
    resume_queue = blocking(queue_verbs.resume_queue)
    summary = blocking(counters.summary)

    def result(self, run: object) -> Any:
        """Return the task's result. Raises RunNotFinished, RunFailed or RunCancelled if there is no result."""
        return orjson.loads(self.load_result(self.execute(outcomes.result_record, (run,), {})))

    def wait(self, run: object, timeout: float | None = None) -> Run:
        """Return the run once it has ended, with any status; raises WaitTimeout after `timeout` seconds."""
        raise NotImplementedError


class DatabaseCalls(Calls):
    """The blocking calls that need a database."""

    totals = blocking(counters.totals)
    subscriptions = blocking(subscription_verbs.subscriptions)
    add_subscription = blocking(subscription_verbs.add_subscription)
    remove_subscription = blocking(subscription_verbs.remove_subscription)
    pause_subscription = blocking(subscription_verbs.pause_subscription)
    resume_subscription = blocking(subscription_verbs.resume_subscription)
    rotate_secret = blocking(subscription_verbs.rotate_secret)
    deliveries = blocking(subscription_verbs.deliveries)
    redeliver = blocking(subscription_verbs.redeliver)


class AsyncCalls:
    """The asynchronous calls that every client has."""

    settings: Settings
    borrowed = False

    async def execute(self, verb: Verb[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
        """Make a call and return its answer."""
        raise NotImplementedError

    def load_result(self, found: ResultRecord) -> bytes:
        """The bytes of a result; called in a thread."""
        raise NotImplementedError

    def blocking_client(self) -> Calls:
        """A blocking client of the same database or API, for handles that read without an await."""
        raise NotImplementedError

    submit = awaiting(submissions.submit)
    submit_many = awaiting(submissions.submit_many)
    get = awaiting(runs.get)
    list = awaiting(runs.list_runs)
    cancel = awaiting(outcomes.cancel)
    postpone = awaiting(outcomes.postpone)
    retry = awaiting(outcomes.retry)
    events = awaiting(history.events)
    logs = awaiting(history.logs)
    attempts = awaiting(history.attempts)
    why = awaiting(history.why)
    workers = awaiting(worker_verbs.workers)
    drain_worker = awaiting(worker_verbs.drain_worker)
    queues = awaiting(queue_verbs.queues)
    pause_queue = awaiting(queue_verbs.pause_queue)
    resume_queue = awaiting(queue_verbs.resume_queue)
    summary = awaiting(counters.summary)

    async def result(self, run: object) -> Any:
        """Return the task's result. Raises RunNotFinished, RunFailed or RunCancelled if there is no result."""
        found = await self.execute(outcomes.result_record, (run,), {})
        return orjson.loads(await asyncio.to_thread(self.load_result, found))

    async def wait(self, run: object, timeout: float | None = None) -> AsyncRun:
        """Return the run once it has ended, with any status; raises WaitTimeout after `timeout` seconds."""
        raise NotImplementedError


class AsyncDatabaseCalls(AsyncCalls):
    """The asynchronous calls that need a database."""

    totals = awaiting(counters.totals)
    subscriptions = awaiting(subscription_verbs.subscriptions)
    add_subscription = awaiting(subscription_verbs.add_subscription)
    remove_subscription = awaiting(subscription_verbs.remove_subscription)
    pause_subscription = awaiting(subscription_verbs.pause_subscription)
    resume_subscription = awaiting(subscription_verbs.resume_subscription)
    rotate_secret = awaiting(subscription_verbs.rotate_secret)
    deliveries = awaiting(subscription_verbs.deliveries)
    redeliver = awaiting(subscription_verbs.redeliver)
