"""Execution in child processes, one per slot, kept and used for many runs.

A child that hangs, leaks, crashes or is killed takes nothing with it but the run it performs: time limits and cancels
really end it, the worker's leases are renewed elsewhere, and another child takes its slot. Runs that take long are
given one at a time, to a child that is free; tiny ones by the frame, and they come back if one of them turns out long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
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
from holdfast.executors.performing import MESSAGE_LENGTH, clean, kept
from holdfast.observe import emit

MOST = 1000
FRAME = 100
# So much work is given to a child at once; what is known to take longer than this is given alone.
FRAME_SECONDS = 0.01
FRAMES_PER_CHILD = 2
READY_WITHIN = 120.0
# The next attempt of a run waits this long for another child than the one it failed in, and then gets a new one.
ANOTHER_CHILD_WITHIN = 0.5
# How long to wait for children that were killed, to know what they had begun.
DEAD_WITHIN = 1.0
# A run is given to so many children that do not begin it.
MOST_DROPS = 3
QUESTIONS = ("find_step", "record_step", "submit", "stored_children", "store")
DEFAULT_LIMITS = ChildLimits()


class Waiting(NamedTuple):
    claim: Claim
    given_at: float


class ProcessExecutor:
    """Performs up to `slots` runs at once, each in a child process of its own."""

    name = "process"

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
        self._look: asyncio.TimerHandle | None = None
        self._open = False
        self._draining = False
        self._unbegun: list[Claim] = []
        self._failures = 0
        self._chores: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()

    async def open(self, place: ExecutorContext) -> None:
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._open = True
        for _ in range(self.slots):
            self._refill()

    def _spawn(self) -> None:
        slot = ChildSlot(
            self._place,
            self._limits,
            ended=self._end,
            unbegun=self._back,
            dropped=self._drop,
            asked=self._asked,
            left=self._left,
            late=self._report_late,
        )
        self._child_slots.append(slot)
        self._chore(self._connect(slot))
        self._loop.call_later(READY_WITHIN, self._expect_ready, slot)

    async def _connect(self, slot: ChildSlot) -> None:
        try:
            await slot.child.open()
        except Exception as error:  # noqa: BLE001 - whatever it is, this child cannot be talked to
            slot.complaint = f"{type(error).__name__}: {error}"
            slot.child.kill()

    def _expect_ready(self, slot: ChildSlot) -> None:
        if not slot.ready and slot in self._child_slots:
            slot.complaint = f"it was not ready within {READY_WITHIN:g} s; do its task modules do work when imported?"
            slot.child.kill()

    def give(self, worker_id: str, claims: Sequence[Claim]) -> None:
        now = monotonic()
        self._worker_id = worker_id
        self._held += len(claims)
        self._waiting.extend([Waiting(claim, now) for claim in claims])
        self._dispatch()

    def room(self) -> int:
        """Room for runs in children that are ready; a run is not claimed to wait for one that is yet to start."""
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
        """Give what waits to children that can begin it."""
        now = monotonic()
        while self._waiting:
            for slot in sorted((one for one in self._child_slots if one.usable(now)), key=lambda one: one.load):
                claims = self._frame(slot, now)
                if claims:
                    slot.give(self._worker_id, claims)
                    break
            else:
                self._make_way(now)
                break
        self._arrange_look()

    def _make_way(self, now: float) -> None:
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

        Attempts after one that failed in this child are left to others. If none takes them for a while, this child gets
        nothing more: once it is idle, it is replaced.
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

    def _end(self, ended: list[Ended]) -> None:
        """Gather what ended until the loop has read all there is to read."""
        if not self._ended:
            self._loop.call_soon(self._tell)
        self._ended += ended

    def _tell(self) -> None:
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
            pace.saw(1, elapsed)
        self._pace.saw(len(ended), total)
        large = [one for one in ended if isinstance(one.outcome, Succeeded) and self._large(one.outcome)]
        if large:
            ended = [one for one in ended if one not in large]
            for one in large:
                self._chore(self._keep(one))
        self._held -= len(ended)
        self._place.report(ended)
        self._dispatch()

    def _large(self, outcome: Succeeded) -> bool:
        text = outcome.result or ""
        limit = self._place.limits.inline_result_bytes
        return len(text) > limit or (len(text) * 4 > limit and len(text.encode()) > limit)

    async def _keep(self, one: Ended) -> None:
        outcome = one.outcome
        if isinstance(outcome, Succeeded):
            self._storing += 1
            try:
                stored = await asyncio.to_thread(kept, self._place.store, one.claim.ref, outcome)
            finally:
                self._storing -= 1
            self._held -= 1
            self._place.report([Ended(one.claim, stored)])

    def _drop(self, claims: list[Claim]) -> None:
        """Reassign runs that a dead child had not begun, one at a time; a run that no child begins ends as crashed."""
        for claim in claims:
            self._dropped[claim.run_id] = self._dropped.get(claim.run_id, 0) + 1
        lost = [claim for claim in claims if self._dropped[claim.run_id] >= MOST_DROPS]
        if lost:
            said = f"{MOST_DROPS} child processes exited or hung before they began the run"
            error = {"class": "ChildCrashed", "message": said, "traceback": None}
            self._end([Ended(claim, Failed(error, reason=ReasonCode.CRASH)) for claim in lost])
        self._back([claim for claim in claims if claim not in lost])

    def _back(self, claims: list[Claim]) -> None:
        """Runs that have not begun: first in line for whoever is free, unless no more are to begin."""
        if self._draining:
            self._end([Ended(claim, NotBegun()) for claim in claims])
            return
        now = monotonic()
        self._waiting.extendleft(Waiting(claim, now) for claim in reversed(claims))
        self._loop.call_soon(self._dispatch)

    def _asked(self, slot: ChildSlot, message: list[Any]) -> None:
        match message:
            case ["ready"]:
                self._failures = 0
                self._dispatch()
                self._place.report([])  # there is room now
            case ["ask", ref, number, method, *args] if method in QUESTIONS:
                self._chore(self._answer(slot, number, method, AttemptRef(*ref), args))

    async def _answer(self, slot: ChildSlot, number: int, method: str, ref: AttemptRef, args: list[Any]) -> None:
        attempt_services = self._place.attempt_services
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
                    stored = await asyncio.to_thread(self._place.store, ref.run_id, ref.number, text.encode())
                    answer = [stored.ref, stored.size, stored.sha256]
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is the asker's to handle
            slot.child.channel.send([["refused", number, type(error).__name__, clean(str(error), MESSAGE_LENGTH)]])
        else:
            slot.child.channel.send([["answer", number, answer]])

    def _left(self, slot: ChildSlot, code: int) -> None:
        """A child is dead: its slot is taken by another, at once unless none of them lives to be ready."""
        self._child_slots.remove(slot)
        if slot.abandoned:
            self._unbegun += slot.unbegun()
        if not self._open:
            if not self._child_slots:
                self._empty.set()
            return
        if slot.complaint or not (slot.performed or slot.abandoned):
            self._failures += 1
            emit("child.failed", pid=slot.child.pid, exit_code=code, error=slot.complaint)
        self._loop.call_later(self._pause(), self._refill)

    def _refill(self) -> None:
        if not self._open or len(self._child_slots) >= self.slots:
            return
        try:
            self._spawn()
        except Exception as error:  # noqa: BLE001 - no memory, process, descriptor or thread to be had: later there may be
            self._failures += 1
            emit("child.failed", pid=None, exit_code=None, error=f"{type(error).__name__}: {error}")
            self._loop.call_later(self._pause(), self._refill)

    def _pause(self) -> float:
        return 0.0 if self._failures < 2 else min(5.0, 0.1 * 2.0 ** min(self._failures, 10))

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        for one in list(self._waiting):
            if one.claim.run_id == ref.run_id and one.claim.number == ref.number:
                self._waiting.remove(one)
                self._end([Ended(one.claim, stopped_by(request, 0.0))])
                return
        for slot in self._child_slots:
            if slot.holds(ref):
                slot.stop(ref, request)
        self._arrange_look()

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

    def _arrange_look(self) -> None:
        if self._look is None and self._held:
            now = monotonic()
            pause = min((slot.next_look(now) for slot in self._child_slots if slot.load), default=1.0)
            if self._waiting:
                pause = min(pause, ANOTHER_CHILD_WITHIN / 2)
            self._look = self._loop.call_later(pause, self._look_after)

    def _look_after(self) -> None:
        self._look = None
        now = monotonic()
        for slot in self._child_slots:
            if slot.load and slot.ready:
                slot.look_after(now)
        self._dispatch()

    def _chore(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def kill(self) -> None:
        for slot in list(self._child_slots):
            slot.abandon()
        with suppress(RuntimeError):  # the loop is closed: nothing is left to be forgotten
            self._loop.call_soon_threadsafe(self._forget)

    def _report_late(self, ended: list[Ended]) -> None:
        """Report the runs that ended before everything was killed. Large results are lost."""
        kept = [one for one in ended if not (isinstance(one.outcome, Succeeded) and self._large(one.outcome))]
        if kept and self._open:
            self._place.report(kept)

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
        self._report_late(self._ended)
        self._ended = []
        self._dropped.clear()
        self._held = self._storing + sum(slot.load for slot in self._child_slots if not slot.abandoned)

    async def close(self) -> None:
        self._open = False
        self._empty.clear()
        if self._look is not None:
            self._look.cancel()
        for task in list(self._chores):
            task.cancel()
        for slot in self._child_slots:
            slot.abandon()
        if self._child_slots:
            await self._empty.wait()
