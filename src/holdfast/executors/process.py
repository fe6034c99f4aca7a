"""Execution in child processes, one per slot, each used for many runs.

A child that hangs, leaks, crashes or is killed affects only the run that it performs: time limits and cancels are
enforced, the worker renews its lease independently, and another child takes the slot. Long runs are assigned one at a
time to a free child. Tiny ones are assigned many at a time, and are withdrawn if one of them turns out to be long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

from holdfast.domain.execution import ChildLimits, Ended, ExecutorContext
from holdfast.domain.reasons import LeaseRequest, ReasonCode
from holdfast.domain.settling import Failed, NotBegun, Succeeded, stopped_by
from holdfast.domain.values import AttemptRef, Claim
from holdfast.executors.channel import received_options
from holdfast.executors.child_slot import ChildSlot
from holdfast.executors.pace import Pace
from holdfast.executors.performing import MESSAGE_LENGTH, clean, is_large, kept
from holdfast.observe import emit

MOST = 1000
FRAME = 100
# How many seconds of work a child gets at once; a run that is known to take longer is assigned alone.
FRAME_SECONDS = 0.01
FRAMES_PER_CHILD = 2
READY_WITHIN = 120.0
# After a failure, a run's next attempt waits this long for another child; then the child it failed in is replaced.
ANOTHER_CHILD_WITHIN = 0.5
# How long to wait for killed children to die: only then is it certain which runs they had begun.
DEAD_WITHIN = 1.0
# A run that this many children did not begin ends as crashed.
MOST_DROPS = 3
QUESTIONS = ("find_step", "record_step", "submit", "stored_children", "store")
DEFAULT_LIMITS = ChildLimits()


class Waiting(NamedTuple):
    claim: Claim
    given_at: float


class ProcessExecutor:
    """Performs up to `slots` runs at once, each in its own child process."""

    name = "process"
    make_slot: Callable[..., ChildSlot] = ChildSlot

    def __init__(self, slots: int = 2, *, limits: ChildLimits = DEFAULT_LIMITS) -> None:
        self.slots = slots
        self._limits = limits
        self._pace = Pace(MOST)
        self._paces: dict[str, Pace] = {}
        self._child_slots: list[ChildSlot] = []
        self._waiting: deque[Waiting] = deque()
        self._ended: list[Ended] = []
        self._dropped: dict[str, int] = {}
        self._held = 0
        self._storing = 0
        self._worker_id = ""
        self._check_timer: asyncio.TimerHandle | None = None
        self._open = False
        self._draining = False
        self._unbegun: list[Claim] = []
        self._failures = 0
        self._jobs: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()

    async def open(self, context: ExecutorContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._open = True
        for _ in range(self.slots):
            self._refill()

    def _spawn(self) -> None:
        slot = self.make_slot(self._context, self._limits, self)
        self._child_slots.append(slot)
        self._start(self._connect(slot))
        self._loop.call_later(READY_WITHIN, self._expect_ready, slot)

    async def _connect(self, slot: ChildSlot) -> None:
        try:
            await slot.child.open()
        except Exception as error:  # noqa: BLE001 - whatever it is, this child cannot be used
            slot.start_error = f"{type(error).__name__}: {error}"
            slot.child.kill()

    def _expect_ready(self, slot: ChildSlot) -> None:
        if not slot.ready and slot in self._child_slots:
            slot.start_error = f"it was not ready within {READY_WITHIN:g} s; do its task modules do work when imported?"
            slot.child.kill()

    def give(self, worker_id: str, claims: Sequence[Claim]) -> None:
        now = monotonic()
        self._worker_id = worker_id
        self._held += len(claims)
        self._waiting.extend([Waiting(claim, now) for claim in claims])
        self._dispatch()

    def room(self) -> int:
        """Return the free capacity of ready children: no runs are claimed for children that are still starting."""
        child_slots = [slot for slot in self._child_slots if slot.free]
        long = 0
        if self._held:
            now = monotonic()
            expected = max(self._pace.mean or 0.0, FRAME_SECONDS)
            for slot in child_slots:
                current = slot.current()
                long += current is not None and now - current.began_at > expected
        wanted = long + self._pace.wanted(len(child_slots) - long)
        return min(wanted, sum(slot.load + slot.runs_left for slot in child_slots)) - self._held

    def _dispatch(self) -> None:
        """Assign waiting runs to children that can begin them."""
        now = monotonic()
        while self._waiting:
            for slot in sorted((one for one in self._child_slots if one.usable(now)), key=lambda one: one.load):
                claims = self._frame(slot, now)
                if claims:
                    slot.give(self._worker_id, claims)
                    break
            else:
                self._replace_idle_child(now)
                break
        self._schedule_check()

    def _replace_idle_child(self, now: float) -> None:
        """Replace an idle child if the first waiting run must not go there and no other child accepts it."""
        claim, given_at = self._waiting[0]
        idle = [slot for slot in self._child_slots if slot.free and not slot.load and slot.failed(claim)]
        coming = any(not slot.ready or (slot.leaving and not slot.load) for slot in self._child_slots)
        if not idle or coming or len(self._child_slots) < self.slots:
            return
        others = any(not slot.leaving and not slot.failed(claim) for slot in self._child_slots)
        if not others or now - given_at > ANOTHER_CHILD_WITHIN:
            emit(
                "child.replaced",
                pid=idle[0].child.pid,
                reason="a run that failed in this child waits for its next attempt",
            )
            idle[0].retire()

    def _frame(self, slot: ChildSlot, now: float) -> list[Claim]:
        """Return the runs to assign to this child: one if it is idle, more if they are known to be tiny.

        If an earlier attempt of a run failed in this child, the run is left for others. If no other child takes it for
        a while, this one gets no more runs, and is replaced once it is idle.
        """
        barred: list[Waiting] = []
        while self._waiting and len(barred) < FRAME and slot.failed(self._waiting[0].claim):
            barred.append(self._waiting.popleft())
        overdue = bool(barred) and now - barred[0].given_at > ANOTHER_CHILD_WITHIN
        claims = self._take_frame(slot) if self._waiting and not overdue else []
        self._waiting.extendleft(reversed(barred))
        return claims

    def _take_frame(self, slot: ChildSlot) -> list[Claim]:
        size = self._frame_size(self._waiting[0].claim)
        if size == 1:
            return [self._waiting.popleft().claim] if slot.load == 0 else []
        share = -(-len(self._waiting) // self.slots)
        room = min(size, share, FRAME * FRAMES_PER_CHILD - slot.load, slot.runs_left)
        if slot.load and room < min(size, share, FRAME // 2):
            return []
        claims: list[Claim] = []
        while self._waiting and len(claims) < room:
            claim = self._waiting[0].claim
            if claims and (self._frame_size(claim) == 1 or (claim.number > 1 and slot.failed(claim))):
                break
            claims.append(self._waiting.popleft().claim)
        return claims

    def _frame_size(self, claim: Claim) -> int:
        pace = self._paces.get(claim.task)
        if pace is None or pace.mean is None or pace.mean > FRAME_SECONDS:
            return 1
        if self._dropped and claim.run_id in self._dropped:
            return 1
        return min(FRAME, int(FRAME_SECONDS / max(pace.mean, 1e-6)))

    def end(self, ended: list[Ended]) -> None:
        """Gather results of children until the loop has read all messages that have arrived."""
        if not self._ended:
            self._loop.call_soon(self._report)
        self._ended += ended

    def _report(self) -> None:
        ended, self._ended = self._ended, []
        if not ended:
            return
        total = 0.0
        for one in ended:
            if self._dropped:
                self._dropped.pop(one.claim.run_id, None)
            elapsed = one.outcome.elapsed or 0.0
            total += elapsed
            pace = self._paces.get(one.claim.task)
            if pace is None:
                pace = self._paces[one.claim.task] = Pace(FRAME)
            pace.record(1, elapsed)
        self._pace.record(len(ended), total)
        large = [one for one in ended if is_large(one.outcome, self._context.limits)]
        if large:
            ended = [one for one in ended if one not in large]
            for one in large:
                self._start(self._keep(one))
        self._held -= len(ended)
        self._context.report(ended)
        self._dispatch()

    async def _keep(self, one: Ended) -> None:
        outcome = one.outcome
        if isinstance(outcome, Succeeded):
            self._storing += 1
            try:
                stored = await asyncio.to_thread(kept, self._context.store, one.claim.ref, outcome)
            finally:
                self._storing -= 1
            self._held -= 1
            self._context.report([Ended(one.claim, stored)])

    def drop(self, claims: list[Claim]) -> None:
        """Reassign runs that a dead child had not begun, one at a time; a run that no child begins ends as crashed."""
        for claim in claims:
            self._dropped[claim.run_id] = self._dropped.get(claim.run_id, 0) + 1
        lost = [claim for claim in claims if self._dropped[claim.run_id] >= MOST_DROPS]
        if lost:
            message = f"{MOST_DROPS} child processes exited or hung before they began the run"
            error = {"class": "ChildCrashed", "message": message, "traceback": None}
            self.end([Ended(claim, Failed(error, reason=ReasonCode.CRASH)) for claim in lost])
        self.requeue([claim for claim in claims if claim not in lost])

    def requeue(self, claims: list[Claim]) -> None:
        """Put runs that have not begun at the head of the queue, or report them if no more runs may begin."""
        if self._draining:
            self.end([Ended(claim, NotBegun()) for claim in claims])
            return
        now = monotonic()
        self._waiting.extendleft(Waiting(claim, now) for claim in reversed(claims))
        self._loop.call_soon(self._dispatch)

    def receive(self, slot: ChildSlot, message: list[Any]) -> None:
        """Handle a child that is ready, and questions of its runs."""
        match message:
            case ["ready"]:
                self._failures = 0
                self._dispatch()
                self._context.report([])  # there is room now
            case ["ask", ref, number, method, *args] if method in QUESTIONS:
                self._start(self._answer(slot, number, method, AttemptRef(*ref), args))

    async def _answer(self, slot: ChildSlot, number: int, method: str, ref: AttemptRef, args: list[Any]) -> None:
        attempt_services = self._context.attempt_services
        answer: Any = None
        try:
            match method, args:
                case "find_step", [name]:
                    answer = await attempt_services.find_step(ref, name)
                case "record_step", [name, result]:
                    await attempt_services.record_step(ref, name, result)
                case "submit", [task, parameters, options]:
                    answer = await attempt_services.submit(ref, task, parameters, received_options(options))
                case "stored_children", []:
                    answer = await attempt_services.stored_children(ref)
                case "store", [text]:
                    stored = await asyncio.to_thread(self._context.store, ref.run_id, ref.number, text.encode())
                    answer = [stored.ref, stored.size, stored.sha256]
        except Exception as error:  # noqa: BLE001 - the task handles whatever goes wrong
            slot.child.channel.send([["refused", number, type(error).__name__, clean(str(error), MESSAGE_LENGTH)]])
        else:
            slot.child.channel.send([["answer", number, answer]])

    def replace(self, slot: ChildSlot, code: int) -> None:
        """Replace a dead child: at once, or after a pause if children die before they are ready."""
        self._child_slots.remove(slot)
        if slot.abandoned:
            self._unbegun += slot.unbegun()
        if not self._open:
            if not self._child_slots:
                self._empty.set()
            return
        if slot.start_error or not (slot.performed or slot.abandoned):
            self._failures += 1
            emit("child.failed", pid=slot.child.pid, exit_code=code, error=slot.start_error)
        self._loop.call_later(self._pause(), self._refill)

    def _refill(self) -> None:
        if not self._open or len(self._child_slots) >= self.slots:
            return
        try:
            self._spawn()
        except Exception as error:  # noqa: BLE001 - no memory, process, descriptor or thread is available now
            self._failures += 1
            emit("child.failed", pid=None, exit_code=None, error=f"{type(error).__name__}: {error}")
            self._loop.call_later(self._pause(), self._refill)

    def _pause(self) -> float:
        return 0.0 if self._failures < 2 else min(5.0, 0.1 * 2.0 ** min(self._failures, 10))

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        for one in list(self._waiting):
            if one.claim.run_id == ref.run_id and one.claim.number == ref.number:
                self._waiting.remove(one)
                self.end([Ended(one.claim, stopped_by(request, 0.0))])
                return
        for slot in self._child_slots:
            if slot.holds(ref):
                slot.stop(ref, request)
        self._schedule_check()

    def take_back(self, waiting_for: float = 0.0) -> list[Claim]:
        before = monotonic() - waiting_for
        taken = [one.claim for one in self._waiting if one.given_at <= before]
        if taken:
            self._waiting = deque(one for one in self._waiting if one.given_at > before)
            self._held -= len(taken)
            for claim in taken:
                self._dropped.pop(claim.run_id, None)
        if not waiting_for:
            self._draining = True
            for slot in self._child_slots:
                slot.withdraw()
        return taken

    def _schedule_check(self) -> None:
        if self._check_timer is None and self._held:
            now = monotonic()
            pause = min((slot.next_check(now) for slot in self._child_slots if slot.load), default=1.0)
            if self._waiting:
                pause = min(pause, ANOTHER_CHILD_WITHIN / 2)
            self._check_timer = self._loop.call_later(pause, self._check)

    def _check(self) -> None:
        self._check_timer = None
        now = monotonic()
        for slot in self._child_slots:
            if slot.load and slot.ready:
                slot.check(now)
        self._dispatch()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    def kill(self) -> None:
        for slot in list(self._child_slots):
            slot.abandon()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._forget)

    def report_late(self, ended: list[Ended]) -> None:
        """Report runs of abandoned children, which ended before everything was killed. Large results are lost."""
        small = [one for one in ended if not is_large(one.outcome, self._context.limits)]
        if small and self._open:
            self._context.report(small)

    async def unbegun(self) -> list[Claim]:
        # Which runs a child had begun is certain once it is dead.
        deadline = monotonic() + DEAD_WITHIN
        while any(slot.abandoned for slot in self._child_slots) and monotonic() < deadline:  # noqa: ASYNC110 - a few ms, once
            await asyncio.sleep(0.005)
        found, self._unbegun = self._unbegun, []
        return found

    def _forget(self) -> None:
        self._unbegun += [one.claim for one in self._waiting]
        self._waiting.clear()
        self.report_late(self._ended)
        self._ended = []
        self._dropped.clear()
        self._held = self._storing + sum(slot.load for slot in self._child_slots if not slot.abandoned)

    async def close(self) -> None:
        self._open = False
        self._empty.clear()
        if self._check_timer is not None:
            self._check_timer.cancel()
        for task in list(self._jobs):
            task.cancel()
        for slot in self._child_slots:
            slot.abandon()
        if self._child_slots:
            await self._empty.wait()
