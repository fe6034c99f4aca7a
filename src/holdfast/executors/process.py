"""Execution in child processes, one per slot, kept and used for many runs.

A child that hangs, leaks, crashes or is killed takes nothing with it but the run it performs: time limits and cancels
really end it, the worker's leases are renewed elsewhere, and another child takes its seat. Runs that take long are
given one at a time, to a child that is free; tiny ones by the frame, and they come back if one of them turns out long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

from holdfast.domain.execution import ChildLimits, Ended, Place
from holdfast.domain.settling import Failed, NotBegun, Stopped, Succeeded
from holdfast.domain.values import AttemptRef, Claim
from holdfast.executors.crossing import received_options
from holdfast.executors.pace import Pace
from holdfast.executors.performing import MESSAGE_LENGTH, clean, kept
from holdfast.executors.seat import Seat
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
        self._seats: list[Seat] = []
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

    async def open(self, place: Place) -> None:
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._open = True
        for _ in range(self.slots):
            self._refill()

    def _spawn(self) -> None:
        seat = Seat(
            self._place,
            self._limits,
            ended=self._end,
            unbegun=self._back,
            dropped=self._drop,
            asked=self._asked,
            left=self._left,
            late=self._report_late,
        )
        self._seats.append(seat)
        self._chore(self._connect(seat))
        self._loop.call_later(READY_WITHIN, self._expect_ready, seat)

    async def _connect(self, seat: Seat) -> None:
        try:
            await seat.child.open()
        except Exception as error:  # noqa: BLE001 - whatever it is, this child cannot be talked to
            seat.complaint = f"{type(error).__name__}: {error}"
            seat.child.kill()

    def _expect_ready(self, seat: Seat) -> None:
        if not seat.ready and seat in self._seats:
            seat.complaint = f"it was not ready within {READY_WITHIN:g} s; do its task modules do work when imported?"
            seat.child.kill()

    def give(self, worker_id: str, claims: Sequence[Claim]) -> None:
        now = monotonic()
        self._worker_id = worker_id
        self._held += len(claims)
        self._waiting.extend([Waiting(claim, now) for claim in claims])
        self._dispatch()

    def room(self) -> int:
        """Room for runs in children that are ready; a run is not claimed to wait for one that is yet to start."""
        seats = [seat for seat in self._seats if seat.free]
        long = 0
        if self._held:
            now = monotonic()
            expected = max(self._pace.mean or 0.0, FRAME_SECONDS)
            for seat in seats:
                current = seat.current()
                long += current is not None and now - current.began_at > expected
        wanted = long + self._pace.wanted(len(seats) - long)
        return min(wanted, sum(seat.load + seat.runs_left for seat in seats)) - self._held

    def _dispatch(self) -> None:
        """Give what waits to children that can begin it."""
        now = monotonic()
        while self._waiting:
            for seat in sorted((one for one in self._seats if one.usable(now)), key=lambda one: one.load):
                claims = self._frame(seat, now)
                if claims:
                    seat.give(self._worker_id, claims)
                    break
            else:
                self._make_way(now)
                break
        self._arrange_look()

    def _make_way(self, now: float) -> None:
        """Replace an idle child if the first waiting run must not go there and no other child accepts it."""
        claim, given_at = self._waiting[0]
        idle = [seat for seat in self._seats if seat.free and not seat.load and seat.failed(claim)]
        coming = any(not seat.ready or (seat.leaving and not seat.load) for seat in self._seats)
        if not idle or coming or len(self._seats) < self.slots:
            return
        others = any(not seat.leaving and not seat.failed(claim) for seat in self._seats)
        if not others or now - given_at > ANOTHER_CHILD_WITHIN:
            emit(
                "child.replaced",
                pid=idle[0].child.pid,
                reason="a run that failed in this child waits for its next attempt",
            )
            idle[0].retire()

    def _frame(self, seat: Seat, now: float) -> list[Claim]:
        """Return the runs to assign to this child: one if it is idle, more if they are known to be tiny.

        Attempts after one that failed in this child are left to others. If none takes them for a while, this child gets
        nothing more: once it is idle, it is replaced.
        """
        barred: list[Waiting] = []
        while self._waiting and len(barred) < FRAME and seat.failed(self._waiting[0].claim):
            barred.append(self._waiting.popleft())
        overdue = bool(barred) and now - barred[0].given_at > ANOTHER_CHILD_WITHIN
        claims = self._take_frame(seat) if self._waiting and not overdue else []
        self._waiting.extendleft(reversed(barred))
        return claims

    def _take_frame(self, seat: Seat) -> list[Claim]:
        size = self._frame_size(self._waiting[0].claim)
        if size == 1:
            return [self._waiting.popleft().claim] if seat.load == 0 else []
        share = -(-len(self._waiting) // self.slots)
        room = min(size, share, FRAME * FRAMES_PER_CHILD - seat.load, seat.runs_left)
        if seat.load and room < min(size, share, FRAME // 2):
            return []
        claims: list[Claim] = []
        while self._waiting and len(claims) < room:
            claim = self._waiting[0].claim
            if claims and (self._frame_size(claim) == 1 or (claim.number > 1 and seat.failed(claim))):
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
            self._end([Ended(claim, Failed(error, reason="crash")) for claim in lost])
        self._back([claim for claim in claims if claim not in lost])

    def _back(self, claims: list[Claim]) -> None:
        """Runs that have not begun: first in line for whoever is free, unless no more are to begin."""
        if self._draining:
            self._end([Ended(claim, NotBegun()) for claim in claims])
            return
        now = monotonic()
        self._waiting.extendleft(Waiting(claim, now) for claim in reversed(claims))
        self._loop.call_soon(self._dispatch)

    def _asked(self, seat: Seat, message: list[Any]) -> None:
        match message:
            case ["ready"]:
                self._failures = 0
                self._dispatch()
                self._place.report([])  # there is room now
            case ["ask", ref, number, method, *args] if method in QUESTIONS:
                self._chore(self._answer(seat, number, method, AttemptRef(*ref), args))

    async def _answer(self, seat: Seat, number: int, method: str, ref: AttemptRef, args: list[Any]) -> None:
        desk = self._place.desk
        answer: Any = None
        try:
            match method, args:
                case "find_step", [name]:
                    answer = await desk.find_step(ref, name)
                case "record_step", [name, result]:
                    await desk.record_step(ref, name, result)
                case "submit", [task, parameters, options]:
                    answer = await desk.submit(ref, task, parameters, received_options(options))
                case "stored_children", []:
                    answer = await desk.stored_children(ref)
                case "store", [text]:
                    stored = await asyncio.to_thread(self._place.store, ref.run_id, ref.number, text.encode())
                    answer = [stored.ref, stored.size, stored.sha256]
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is the asker's to handle
            seat.child.send([["refused", number, type(error).__name__, clean(str(error), MESSAGE_LENGTH)]])
        else:
            seat.child.send([["answer", number, answer]])

    def _left(self, seat: Seat, code: int) -> None:
        """A child is dead: its seat is taken by another, at once unless none of them lives to be ready."""
        self._seats.remove(seat)
        if seat.abandoned:
            self._unbegun += seat.unbegun()
        if not self._open:
            if not self._seats:
                self._empty.set()
            return
        if seat.complaint or not (seat.performed or seat.abandoned):
            self._failures += 1
            emit("child.failed", pid=seat.child.pid, exit_code=code, error=seat.complaint)
        self._loop.call_later(self._pause(), self._refill)

    def _refill(self) -> None:
        if not self._open or len(self._seats) >= self.slots:
            return
        try:
            self._spawn()
        except Exception as error:  # noqa: BLE001 - no memory, process, descriptor or thread to be had: later there may be
            self._failures += 1
            emit("child.failed", pid=None, exit_code=None, error=f"{type(error).__name__}: {error}")
            self._loop.call_later(self._pause(), self._refill)

    def _pause(self) -> float:
        return 0.0 if self._failures < 2 else min(5.0, 0.1 * 2.0 ** min(self._failures, 10))

    def stop(self, ref: AttemptRef, reason: str) -> None:
        for one in list(self._waiting):
            if one.claim.run_id == ref.run_id and one.claim.number == ref.number:
                self._waiting.remove(one)
                self._end([Ended(one.claim, Stopped())])
                return
        for seat in self._seats:
            if seat.holds(ref):
                seat.stop(ref, "cancel", reason)
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
            for seat in self._seats:
                seat.withdraw()
        return taken

    def _arrange_look(self) -> None:
        if self._look is None and self._held:
            now = monotonic()
            pause = min((seat.next_look(now) for seat in self._seats if seat.load), default=1.0)
            if self._waiting:
                pause = min(pause, ANOTHER_CHILD_WITHIN / 2)
            self._look = self._loop.call_later(pause, self._look_after)

    def _look_after(self) -> None:
        self._look = None
        now = monotonic()
        for seat in self._seats:
            if seat.load and seat.ready:
                seat.look_after(now)
        self._dispatch()

    def _chore(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def kill(self) -> None:
        for seat in list(self._seats):
            seat.abandon()
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
        while any(seat.abandoned for seat in self._seats) and monotonic() < deadline:  # noqa: ASYNC110 - a few ms, once
            await asyncio.sleep(0.005)
        found, self._unbegun = self._unbegun, []
        return found

    def _forget(self) -> None:
        self._unbegun += [one.claim for one in self._waiting]
        self._waiting.clear()
        self._report_late(self._ended)
        self._ended = []
        self._dropped.clear()
        self._held = self._storing + sum(seat.load for seat in self._seats if not seat.abandoned)

    async def close(self) -> None:
        self._open = False
        self._empty.clear()
        if self._look is not None:
            self._look.cancel()
        for task in list(self._chores):
            task.cancel()
        for seat in self._seats:
            seat.abandon()
        if self._seats:
            await self._empty.wait()
