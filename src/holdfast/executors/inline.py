"""Inline execution: tiny and asynchronous tasks, in threads of the worker process.

A thread cannot be killed. A run that ignores its time limit or a cancel continues until it returns, and its result is
then rejected. Tasks that may hang, or that hold the interpreter for long, need the process executor.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from holdfast.domain.context import OwnTransaction
from holdfast.domain.execution import Ended, ExecutorContext, transactions_of
from holdfast.domain.reasons import LeaseRequest, out_of_time
from holdfast.domain.settling import Succeeded, stopped_by, timeout_of
from holdfast.domain.tasks import registry
from holdfast.domain.values import AttemptRef, Claim, StoredResult
from holdfast.executors.pace import Pace
from holdfast.executors.performing import is_large, kept
from holdfast.executors.task_threads import AsyncThread, Running, SyncThread, TaskThread, Waiting

T = TypeVar("T")

MOST = 2000
CHECK_EVERY = 0.2
# Runs share the interpreter with the worker's loop, which would otherwise wait up to 5 ms for the GIL each time.
SWITCH_SECONDS = 0.001


class InlineExecutor:
    """Performs up to `slots` coroutines at once, and all other tasks one after the other."""

    name = "inline"

    def __init__(self, slots: int = 10) -> None:
        self.slots = slots
        self._pace = Pace(MOST)
        self._ended: deque[Ended] = deque()
        self._unbegun: list[Claim] = []
        self._scheduled = False
        self._held = 0
        self._is_async: dict[str, bool] = {}
        self._sync: SyncThread | None = None
        self._async: AsyncThread | None = None
        self._check_timer: asyncio.TimerHandle | None = None

    async def open(self, context: ExecutorContext) -> None:
        sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._link: InlineLink | None = None
        self._worker_id = ""

    def give(self, worker_id: str, claims: Sequence[Claim]) -> None:
        if self._link is None or worker_id != self._worker_id:
            self._worker_id = worker_id
            self._link = InlineLink(self._context, self._loop, worker_id, self._extend)
        now = monotonic()
        self._held += len(claims)
        threads: dict[str, TaskThread] = {}
        for claim in claims:
            thread = threads.get(claim.task)
            if thread is None:
                thread = threads[claim.task] = self._thread(claim.task)
            thread.waiting.append(tuple.__new__(Waiting, (claim, self._link, now)))
        for thread in set(threads.values()):
            thread.wake()
        if self._check_timer is None:
            self._check_timer = self._loop.call_later(CHECK_EVERY, self._check_limits)

    def _thread(self, name: str) -> TaskThread:
        is_async = self._is_async.get(name)
        if is_async is None:
            task = registry.find(name)
            is_async = self._is_async[name] = task is not None and task.is_async
        if is_async:
            self._async = self._async or AsyncThread(self._context.limits, self._end, self.slots)
            return self._async
        self._sync = self._sync or SyncThread(self._context.limits, self._end)
        return self._sync

    def _threads(self) -> list[TaskThread]:
        return [thread for thread in (self._sync, self._async) if thread is not None]

    def room(self) -> int:
        slots = self.slots if self._async is not None or self._sync is None else 1
        oldest = min((one.started for one in self._running()), default=None)
        return self._pace.wanted(slots, monotonic() - oldest if oldest is not None else 0.0) - self._held

    def _running(self) -> list[Running]:
        return [one for thread in self._threads() for one in list(thread.running.values())]

    def _end(self, ended: Ended) -> None:
        """Accept how a run ended. Called in the thread that performed it."""
        if isinstance(ended.outcome, Succeeded) and is_large(ended.outcome, self._context.limits):
            ended = Ended(ended.claim, kept(self._context.store, ended.claim.ref, ended.outcome))
        self._ended.append(ended)
        self._schedule_report()

    def _schedule_report(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._report)

    def _report(self) -> None:
        self._scheduled = False
        batch = [self._ended.popleft() for _ in range(len(self._ended))]
        if not batch:
            return
        self._held -= len(batch)
        self._pace.record(len(batch), sum([outcome.elapsed or 0.0 for _, outcome in batch]))
        self._context.report(batch)

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        for thread in self._threads():
            one = thread.running.get(ref.run_id)
            if one is not None:
                one.context.ask_to_stop(request)
                if one.cancel is not None:
                    one.cancel()
                return
            for waiting in list(thread.waiting):
                if waiting.claim.run_id == ref.run_id and _withdraw(thread, waiting):
                    self._end(Ended(waiting.claim, stopped_by(request, 0.0)))
                    return

    def take_back(self, waiting_for: float = 0.0) -> list[Claim]:
        before = monotonic() - waiting_for
        taken: list[Claim] = []
        for thread in self._threads():
            old = [waiting for waiting in list(thread.waiting) if waiting.given_at <= before]
            taken += [waiting.claim for waiting in old if _withdraw(thread, waiting)]
        self._held -= len(taken)
        return taken

    def _extend(self, ref: AttemptRef, seconds: float) -> None:
        for thread in self._threads():
            one = thread.running.get(ref.run_id)
            if one is not None:
                one.extended += seconds

    def _check_limits(self) -> None:
        """Ask runs that have exceeded their time limit to stop."""
        now = monotonic()
        for one in self._running():
            limit = timeout_of(one.policy) or self._context.limits.timeout
            if limit is not None and now - one.started > limit + one.extended and not one.context.cancelled:
                one.context.ask_to_stop(out_of_time(limit))
                if one.cancel is not None:
                    one.cancel()
        again = self._held > 0
        self._check_timer = self._loop.call_later(CHECK_EVERY, self._check_limits) if again else None

    def kill(self) -> None:
        threads = self._threads()
        self._sync = self._async = None
        for thread in threads:
            self._unbegun += thread.abandon()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._forget)

    async def unbegun(self) -> list[Claim]:
        found, self._unbegun = self._unbegun, []
        return found

    def _forget(self) -> None:
        self._ended.clear()
        self._held = sum(len(thread.waiting) + len(thread.running) for thread in self._threads())

    async def close(self) -> None:
        self.kill()
        if self._check_timer is not None:
            self._check_timer.cancel()


def _withdraw(thread: TaskThread, waiting: Waiting) -> bool:
    try:
        thread.waiting.remove(waiting)
    except (ValueError, IndexError):  # the run began in the meantime
        return False
    return True


class InlineLink:
    """How a run in the worker process reaches its worker: through calls in the thread of the worker's loop."""

    def __init__(
        self,
        context: ExecutorContext,
        loop: asyncio.AbstractEventLoop,
        worker_id: str,
        extend: Callable[[AttemptRef, float], None],
    ) -> None:
        self._context = context
        self._loop = loop
        self.worker_id = worker_id
        self._extend = extend

    @property
    def database_url(self) -> str:
        return self._context.database_url

    def _request(self, request: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(request, self._loop).result()

    def progress(self, ref: AttemptRef, report: str) -> None:
        self._loop.call_soon_threadsafe(self._context.attempt_services.note_progress, ref, report)

    def log(self, ref: AttemptRef, level: str, message: str) -> None:
        self._loop.call_soon_threadsafe(self._context.attempt_services.note_log, ref, level, message)

    def extend(self, ref: AttemptRef, seconds: float) -> None:
        self._extend(ref, seconds)

    def find_step(self, ref: AttemptRef, name: str) -> str | None:
        return self._request(self._context.attempt_services.find_step(ref, name))

    def record_step(self, ref: AttemptRef, name: str, result: str) -> None:
        self._request(self._context.attempt_services.record_step(ref, name, result))

    def submit(self, ref: AttemptRef, task: str, parameters: Any, options: Mapping[str, Any]) -> str:
        return self._request(self._context.attempt_services.submit(ref, task, parameters, options))

    def stored_children(self, ref: AttemptRef) -> dict[str, str]:
        return self._request(self._context.attempt_services.stored_children(ref))

    def transaction(self, ref: AttemptRef) -> OwnTransaction:
        return transactions_of(self._context.transactions)(self._context.database_url, self.worker_id)

    def store(self, ref: AttemptRef, text: bytes) -> StoredResult:
        return self._context.store(ref.run_id, ref.number, text)
