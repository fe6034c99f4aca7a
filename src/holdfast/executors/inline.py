"""Inline execution: tiny and asynchronous tasks, in threads of the worker itself.

Nothing can kill a thread. A run that ignores its time limit or a cancel goes on until it returns; what it returns is
then refused. Tasks that may hang, or hold the interpreter for long, belong in the process executor.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from holdfast.domain.execution import Ended, ExecutorContext
from holdfast.domain.reasons import LeaseRequest, out_of_time
from holdfast.domain.settling import Succeeded, stopped_by, timeout_of
from holdfast.domain.tasks import registry
from holdfast.domain.values import AttemptRef, Claim
from holdfast.executors.inline_link import InlineLink
from holdfast.executors.pace import Pace
from holdfast.executors.performing import kept
from holdfast.executors.task_threads import AsyncThread, Running, SyncThread, TaskThread, Waiting

MOST = 2000
LOOK_EVERY = 0.2
# Runs compute in a thread beside the worker's loop, which would wait 5 ms for each of its turns at the interpreter.
SWITCH_SECONDS = 0.001


class InlineExecutor:
    """Performs coroutines up to `slots` at once, and everything else one after the other."""

    name = "inline"

    def __init__(self, slots: int = 10) -> None:
        self.slots = slots
        self._pace = Pace(MOST)
        self._ended: deque[Ended] = deque()
        self._unbegun: list[Claim] = []
        self._scheduled = False
        self._held = 0
        self._kinds: dict[str, bool] = {}
        self._sync: SyncThread | None = None
        self._async: AsyncThread | None = None
        self._look: asyncio.TimerHandle | None = None

    async def open(self, place: ExecutorContext) -> None:
        sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._link: InlineLink | None = None
        self._worker_id = ""

    def give(self, worker_id: str, claims: Sequence[Claim]) -> None:
        if self._link is None or worker_id != self._worker_id:
            self._worker_id = worker_id
            self._link = InlineLink(self._place, self._loop, worker_id, self._extend)
        now = monotonic()
        self._held += len(claims)
        threads: set[TaskThread] = set()
        for claim in claims:
            thread = self._thread(claim.task)
            thread.waiting.append(Waiting(claim, self._link, now))
            threads.add(thread)
        for thread in threads:
            thread.wake()
        if self._look is None:
            self._look = self._loop.call_later(LOOK_EVERY, self._look_after)

    def _thread(self, name: str) -> TaskThread:
        waits = self._kinds.get(name)
        if waits is None:
            task = registry.find(name)
            waits = self._kinds[name] = task is not None and task.is_async
        if waits:
            self._async = self._async or AsyncThread(self._place.limits, self._end, self.slots)
            return self._async
        self._sync = self._sync or SyncThread(self._place.limits, self._end)
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
        """Called in a thread's thread."""
        if isinstance(ended.outcome, Succeeded) and self._large(ended.outcome):
            ended = Ended(ended.claim, kept(self._place.store, ended.claim.ref, ended.outcome))
        self._ended.append(ended)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._tell)

    def _large(self, outcome: Succeeded) -> bool:
        text = outcome.result or ""
        limit = self._place.limits.inline_result_bytes
        return len(text) > limit or (len(text) * 4 > limit and len(text.encode()) > limit)

    def _tell(self) -> None:
        self._scheduled = False
        batch = []
        try:
            while True:
                batch.append(self._ended.popleft())
        except IndexError:
            pass
        if not batch:
            return
        self._held -= len(batch)
        self._pace.saw(len(batch), sum(ended.outcome.elapsed or 0.0 for ended in batch))
        self._place.report(batch)

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

    def _look_after(self) -> None:
        """Ask runs past their time limit to stop."""
        now = monotonic()
        for one in self._running():
            limit = timeout_of(one.policy) or self._place.limits.timeout
            if limit is not None and now - one.started > limit + one.extended and not one.context.cancelled:
                one.context.ask_to_stop(out_of_time(limit))
                if one.cancel is not None:
                    one.cancel()
        again = self._held > 0
        self._look = self._loop.call_later(LOOK_EVERY, self._look_after) if again else None

    def kill(self) -> None:
        threads = self._threads()
        self._sync = self._async = None
        for thread in threads:
            self._unbegun += thread.abandon()
        with suppress(RuntimeError):  # the loop is closed: nothing is left to be forgotten
            self._loop.call_soon_threadsafe(self._forget)

    async def unbegun(self) -> list[Claim]:
        found, self._unbegun = self._unbegun, []
        return found

    def _forget(self) -> None:
        self._ended.clear()
        self._held = sum(len(thread.waiting) + len(thread.running) for thread in self._threads())

    async def close(self) -> None:
        self.kill()
        if self._look is not None:
            self._look.cancel()


def _withdraw(thread: TaskThread, waiting: Waiting) -> bool:
    try:
        thread.waiting.remove(waiting)
    except (ValueError, IndexError):  # it began in the meantime
        return False
    return True
