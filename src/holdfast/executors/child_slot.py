"""A child slot: one slot of the process executor, with its child process and the runs that were assigned to it."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from holdfast.domain.context import assignment_for
from holdfast.domain.execution import ChildLimits, Ended, ExecutorContext, Settled
from holdfast.domain.reasons import LeaseRequest, ReasonCode, out_of_time
from holdfast.domain.settling import Failed, HandedBack, Outcome, Stopped, Succeeded, stopped_by, timeout_of
from holdfast.domain.values import AttemptRef, Claim
from holdfast.executors.channel import received_run
from holdfast.executors.forked import EarlyChild
from holdfast.executors.spawning import Spawned
from holdfast.observe import emit

if TYPE_CHECKING:
    from holdfast.executors.process import ProcessExecutor

# A run that ignores a request to stop is interrupted after this fraction of the grace period, and killed at its end.
INTERRUPT_AFTER = 0.2
# A cancelled run that does not stop is killed, so that it has ended within five seconds.
TIMEOUT_GRACE, CANCEL_GRACE = 5.0, 4.0
# Runs that have waited this long behind a run that turned out to be long are withdrawn.
WITHDRAW_AFTER = 0.02
# A child that has not responded for this long may be stuck: runs that it has not begun are taken from it.
ANSWER_WITHIN = 1.0
# The most that one check adds to the time without progress: if more time has passed, the worker itself was suspended.
STALL_STEP = 0.25
# How many failed runs are remembered per child, so that it does not get their next attempts.
FAILURES_KEPT = 10_000


_limit = lru_cache(maxsize=1024)(timeout_of)


class Current(NamedTuple):
    """The run that is being performed, and since when."""

    claim: Claim
    began_at: float


class Stop:
    """A request to end an attempt, and how far it has been enforced."""

    __slots__ = ("asked_at", "interrupted", "request")

    def __init__(self, request: LeaseRequest) -> None:
        self.request = request
        self.asked_at = monotonic()
        self.interrupted = False


class ChildSlot:
    """Assigns runs to one child, enforces their limits, and reports to its executor what becomes of them."""

    def __init__(
        self,
        context: ExecutorContext,
        limits: ChildLimits,
        executor: ProcessExecutor,
        *,
        early: EarlyChild | None = None,
    ) -> None:
        self._context = context
        self._limits = limits
        self._executor = executor
        self._given: dict[int, Claim] = {}
        self._next = 0
        self._stops: dict[AttemptRef, Stop] = {}
        self._extensions: dict[AttemptRef, float] = {}
        self._withdrawing_since: float | None = None
        self._revoked_at: float | None = None
        self._checked_at = 0.0
        self._seen: tuple[int, int, int] | None = None
        self._stalled_for = 0.0
        self._closed = False
        self._failed: dict[str, None] = {}
        self.ready = False
        self.leaving = False
        self.abandoned = False
        self.start_error: str | None = None
        self.performed = 0
        self.child = Spawned(context, limits, self._receive, self._die, early)

    @property
    def free(self) -> bool:
        return self.ready and not self.leaving and not self.abandoned and not self.child.dead

    def usable(self, now: float) -> bool:
        """Whether a run given now would begin soon."""
        if not self.free or self._withdrawing_since is not None:
            return False
        if not self._given:
            return True
        current = self.current()
        return not self._stalled_for if current is None else now - current.began_at < WITHDRAW_AFTER

    @property
    def load(self) -> int:
        return len(self._given)

    @property
    def runs_left(self) -> int:
        """How many more runs may be assigned to this child."""
        return self._limits.runs - self.performed

    def failed(self, claim: Claim) -> bool:
        """Whether an earlier attempt of this run failed here; the next one must go to another child."""
        return claim.number > 1 and claim.run_id in self._failed

    def give(self, worker_id: str, claims: list[Claim]) -> None:
        if not self._given:
            self._stalled_for = 0.0
        first = self._next
        self._next += len(claims)
        self._given.update(enumerate(claims, first))
        self.performed += len(claims)
        self.leaving = self.leaving or self.performed >= self._limits.runs
        sent = [list(assignment_for(claim, orjson.Fragment(claim.parameters))) for claim in claims]
        self.child.channel.send([["runs", worker_id, first, sent]])

    def current(self) -> Current | None:
        index, began_at = self.child.state.get()
        claim = self._given.get(index)
        return Current(claim, began_at) if claim is not None else None

    def holds(self, ref: AttemptRef) -> bool:
        return any(claim.run_id == ref.run_id and claim.number == ref.number for claim in self._given.values())

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        """Ask an attempt to stop; `check` enforces the request."""
        if ref not in self._stops:
            self._stops[ref] = Stop(request)
            self.child.channel.send([["stop", ref.run_id, ref.number, *request]])

    def withdraw(self) -> None:
        """Request the runs that have not begun; they are returned through `unbegun`."""
        if self._withdrawing_since is None and len(self._given) > 1:
            self._withdrawing_since = monotonic()
            self.child.channel.send([["withdraw"]])

    def check(self, now: float) -> None:
        """Enforce time limits, kill runs that do not stop, move runs behind a long one, and replace a stuck child."""
        self._measure_stall(now)
        current = self.current()
        if current is None:
            if self._stalled_for > self._limits.begin:
                self._replace(f"it did not begin a run within {self._limits.begin:g} s")
            return
        ref = current.claim.ref
        running_for = now - current.began_at
        limit = self._limit_of(current.claim)
        if limit is not None and running_for > limit + self._extensions.get(ref, 0.0):
            self.stop(ref, out_of_time(limit))
        stop = self._stops.get(ref)
        if stop is not None:
            self._enforce(stop, now - max(stop.asked_at, current.began_at))
        if running_for > WITHDRAW_AFTER:
            self.withdraw()
        if running_for > ANSWER_WITHIN:
            self.child.receive_kept()
        if self._withdrawing_since is not None and now - self._withdrawing_since > ANSWER_WITHIN:
            self._revoke(now)

    def _measure_stall(self, now: float) -> None:
        """Measure how long the child has neither begun nor ended a run."""
        seen = (self.child.state.get()[0], len(self._given), self._next)
        self._stalled_for = self._stalled_for + min(now - self._checked_at, STALL_STEP) if seen == self._seen else 0.0
        self._seen = seen
        self._checked_at = now

    def _replace(self, why: str) -> None:
        """Kill a child that is stuck between runs. Its runs have not begun, and go to other children."""
        if not self.leaving:
            emit("child.replaced", pid=self.child.pid, reason=why)
        self.leaving = True
        self.child.kill()

    def _revoke(self, now: float) -> None:
        """Take back runs that have not begun from a child that does not respond, for instance if a run holds the GIL.

        The shared state keeps them from beginning. If the child has just written to it, the next check sees that. The
        child is not used again, because it may be about to begin a run that was taken from it.
        """
        index, _ = self.child.state.get()
        if self._revoked_at is None:
            self._revoked_at = now
            self.child.state.revoke(index + 1)
        elif now - self._revoked_at >= WITHDRAW_AFTER:
            self.leaving = True
            self._take(at for at in list(self._given) if at > index)

    def _take(self, indexes: Iterable[int]) -> None:
        """Handle runs that have not begun and will not begin here."""
        taken = self._wanted([self._given.pop(index) for index in indexes if index in self._given])
        if taken:
            self._executor.requeue(taken)
        self._leave_if_done()

    def _wanted(self, unbegun: list[Claim]) -> list[Claim]:
        """Return the runs to pass to other children: those that were not cancelled in the meantime."""
        stops = [(claim, stop) for claim in unbegun if (stop := self._stops.pop(claim.ref, None)) is not None]
        if stops:
            self._executor.end([Ended(claim, stopped_by(stop.request, 0.0)) for claim, stop in stops])
        stopped = [claim for claim, _ in stops]
        return [claim for claim in unbegun if claim not in stopped]

    def _enforce(self, stop: Stop, asked_for: float) -> None:
        grace = self._context.limits.grace
        if stop.request.reason is ReasonCode.TIMEOUT:
            grace, interrupt_after = min(grace, TIMEOUT_GRACE), 0.0
        else:
            grace = min(grace, CANCEL_GRACE)
            interrupt_after = grace * INTERRUPT_AFTER
        if asked_for >= grace:
            self.child.kill()
        elif asked_for >= interrupt_after and not stop.interrupted:
            stop.interrupted = True
            self.leaving = True
            self.child.signal(signal.SIGTERM)

    def _limit_of(self, claim: Claim) -> float | None:
        own = _limit(claim.policy)
        return own if own is not None else self._context.limits.timeout

    def next_check(self, now: float) -> float:
        """Return the seconds until `check` may have something to do."""
        current = self.current()
        if current is None:
            return WITHDRAW_AFTER if self._given else 1.0
        if current.claim.ref in self._stops:
            return 0.05
        limit = self._limit_of(current.claim)
        wait = 1.0 if len(self._given) == 1 else WITHDRAW_AFTER
        if limit is not None:
            wait = min(wait, current.began_at + limit + self._extensions.get(current.claim.ref, 0.0) - now)
        return max(wait, 0.005)

    def _receive(self, message: list[Any]) -> None:
        if self.abandoned and message[0] not in ("ok", "failed", "stopped", "handed back", "settled"):
            return
        match message:
            case ["ok", index, text, elapsed, *adds]:
                self._end(index, Succeeded(text, None, elapsed, tuple(map(received_run, adds))))
            case ["failed", index, error, retryable, reason, exit_code, elapsed]:
                self._end(index, Failed(error, retryable, reason and ReasonCode(reason), exit_code, elapsed))
            case ["stopped", index, elapsed]:
                self._end(index, Stopped(elapsed))
            case ["handed back", index, elapsed, reason, delay]:
                self._end(index, HandedBack(elapsed, ReasonCode(reason), delay))
            case ["settled", index, elapsed]:
                self._end(index, Settled(elapsed))
            case ["progress", ref, report]:
                self._context.attempt_services.note_progress(AttemptRef(*ref), report)
            case ["log", ref, level, line]:
                self._context.attempt_services.note_log(AttemptRef(*ref), level, line)
            case ["extend", ref, seconds]:
                key = AttemptRef(*ref)
                self._extensions[key] = self._extensions.get(key, 0.0) + seconds
            case ["withdrawn", indexes]:
                self._withdrawn(indexes)
            case ["unbegun", indexes]:
                self._take(indexes)
            case ["ready"]:
                self.ready = True
                self._executor.receive(self, message)
            case ["broken", start_error]:
                self.start_error = start_error
            case ["retire", why]:
                emit("child.replaced", pid=self.child.pid, reason=why)
                self.leaving = True
                self._leave_if_done()
            case _:
                self._executor.receive(self, message)

    def _end(self, index: int, outcome: Outcome | Settled) -> None:
        claim = self._given.pop(index, None)
        if claim is not None:
            if self._stops or self._extensions:
                self._stops.pop(claim.ref, None)
                self._extensions.pop(claim.ref, None)
            if isinstance(outcome, Failed):
                self._remember(claim.run_id)
            if self.abandoned:
                self._executor.report_late([Ended(claim, outcome)])
                return
            self._executor.end([Ended(claim, outcome)])
        if self.leaving:
            self._leave_if_done()

    def _remember(self, run_id: str) -> None:
        self._failed[run_id] = None
        if len(self._failed) > FAILURES_KEPT:
            del self._failed[next(iter(self._failed))]

    def _withdrawn(self, indexes: list[int]) -> None:
        self._withdrawing_since = None
        if self._revoked_at is not None and not self.leaving:
            # The child did respond before any run was taken from it.
            self._revoked_at = None
            self.child.state.revoke(None)
        self._take(indexes)

    def _leave_if_done(self) -> None:
        if self.leaving and not self._given and not self.child.dead:
            self.retire()

    def _die(self, code: int) -> None:
        """Handle the death of the child: end the run that it performed, and drop the runs that had not begun."""
        self.ready = False
        if not self.abandoned:
            index, began_at = self.child.state.get()
            begun = [claim for at, claim in self._given.items() if at <= index]
            unbegun = self.unbegun()
            elapsed = max(0.0, monotonic() - began_at)
            self._given.clear()
            self._executor.end([Ended(claim, self._death(claim.ref, code, elapsed)) for claim in begun])
            self._executor.drop(self._wanted(unbegun))
        self._executor.replace(self, code)

    def _death(self, ref: AttemptRef, code: int, elapsed: float) -> Outcome:
        stop = self._stops.pop(ref, None)
        if stop is not None:
            return stopped_by(stop.request, elapsed, code)
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
        error = {"class": "ChildCrashed", "message": f"the process that ran the task {how}", "traceback": None}
        return Failed(error, reason=ReasonCode.CRASH, exit_code=code, elapsed=elapsed)

    def retire(self) -> None:
        """Make an idle child exit, so that a new one can replace it."""
        self.leaving = True
        if not self._closed:
            self._closed = True
            self.child.close()

    def unbegun(self) -> list[Claim]:
        """Return the runs that a dead child had not begun."""
        index, _ = self.child.state.get()
        return [claim for at, claim in self._given.items() if at > index]

    def abandon(self) -> None:
        """Kill the child. Only results from before the kill are still received. May be called from any thread."""
        self.abandoned = True
        self.child.kill()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
