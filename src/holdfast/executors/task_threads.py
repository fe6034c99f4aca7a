"""Task threads: the threads of the worker process that perform inline runs.

Claims wait in a deque, which is safe to share between threads. A task thread takes them from the left; the executor
withdraws claims that have not begun. Outcomes return through a second deque, which the worker's loop empties when it
has time: the longer that takes, the larger the batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

import orjson

from holdfast.domain.context import Link, RunContext, assignment_for, enter, leave
from holdfast.domain.execution import Ended, Limits, Settled
from holdfast.domain.reasons import HAND_BACK
from holdfast.domain.settling import Outcome
from holdfast.domain.tasks import Task, registry
from holdfast.domain.values import Claim
from holdfast.executors.performing import concluded, failed
from holdfast.observe.capture import end_lines


class Waiting(NamedTuple):
    claim: Claim
    link: Link
    given_at: float


class Running:
    """A run that has begun in a thread."""

    __slots__ = ("cancel", "context", "extended", "policy", "started")

    def __init__(self, context: RunContext, policy: str | None, started: float) -> None:
        self.context = context
        self.policy = policy
        self.started = started
        self.extended = 0.0
        self.cancel: Callable[[], object] | None = None


class TaskThread:
    """What both kinds of threads have in common: waiting claims, running attempts, and a callback for outcomes."""

    def __init__(self, limits: Limits, ended: Callable[[Ended], None]) -> None:
        self.limits = limits
        self.ended = ended
        self.waiting: deque[Waiting] = deque()
        self.running: dict[str, Running] = {}
        self.abandoned = False

    def begin(self, one: Waiting) -> tuple[RunContext, Task | None, float]:
        started = monotonic()
        context = RunContext(one.link, assignment_for(one.claim, orjson.loads(one.claim.parameters)))
        self.running[one.claim.run_id] = Running(context, one.claim.policy, started)
        return context, registry.find(one.claim.task), started

    def end(self, claim: Claim, outcome: Outcome | Settled) -> None:
        self.running.pop(claim.run_id, None)
        if not self.abandoned:
            self.ended(tuple.__new__(Ended, (claim, outcome)))

    def abandon(self) -> list[Claim]:
        """Report no more results, and ask running tasks to stop; a task that does not stop keeps its thread.

        Return the claims that had not begun: each is taken either here or by the thread, never by both.
        """
        self.abandoned = True
        unbegun = []
        with suppress(IndexError):
            while True:
                unbegun.append(self.waiting.popleft().claim)
        for one in list(self.running.values()):
            one.context.ask_to_stop(HAND_BACK)
            if one.cancel is not None:
                one.cancel()
        self.wake()
        return unbegun

    def wake(self) -> None:
        raise NotImplementedError


class SyncThread(TaskThread):
    """One thread that performs one run after the other."""

    def __init__(self, limits: Limits, ended: Callable[[Ended], None]) -> None:
        super().__init__(limits, ended)
        self._wake = threading.Event()
        threading.Thread(target=self._work, name="holdfast-inline", daemon=True).start()

    def wake(self) -> None:
        self._wake.set()

    def _work(self) -> None:
        while not self.abandoned:
            try:
                one = self.waiting.popleft()
            except IndexError:
                self._wake.wait()
                self._wake.clear()
                continue
            self.end(one.claim, self._perform(one))

    def _perform(self, one: Waiting) -> Outcome | Settled:
        context, task, started = self.begin(one)
        token = enter(context)
        try:
            found = task or registry.get(one.claim.task)
            value = found.call(context.parameters)
            context.check_children()
            return concluded(context, value, started, self.limits)
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is an outcome
            return failed(context, task, error, started)
        finally:
            end_lines()
            leave(token)


class AsyncThread(TaskThread):
    """One thread with a loop that performs up to `slots` coroutines at once."""

    def __init__(self, limits: Limits, ended: Callable[[Ended], None], slots: int) -> None:
        super().__init__(limits, ended)
        self._slots = slots
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._work, name="holdfast-async", daemon=True).start()

    def wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._pull)

    def _work(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _pull(self) -> None:
        if self.abandoned and not self._tasks:
            self._loop.stop()
        while self.waiting and len(self._tasks) < self._slots:
            try:
                one = self.waiting.popleft()
            except IndexError:
                break
            task = self._loop.create_task(self._perform(one))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._pull()

    async def _perform(self, one: Waiting) -> None:
        context, task, started = self.begin(one)
        me: asyncio.Task[Any] | None = asyncio.current_task()
        if me is not None:
            self.running[one.claim.run_id].cancel = lambda: self._loop.call_soon_threadsafe(me.cancel)
        enter(context)
        outcome: Outcome | Settled
        try:
            found = task or registry.get(one.claim.task)
            value = await found.call(context.parameters)
            if context.attempt > 1 or context.differing is not None:
                await asyncio.to_thread(context.check_children)
            outcome = concluded(context, value, started, self.limits)
        except asyncio.CancelledError as error:
            outcome = failed(context, task, context.stop_reason or error, started)
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is an outcome
            outcome = failed(context, task, error, started)
        end_lines()
        self.end(one.claim, outcome)
