"""Results: from what an executor reports to what the database has acknowledged.

A result waits a few milliseconds for others and is written with them. It is kept until the database acknowledges it.
A result that was sent without a response is in doubt: the worker asks whether it was written before it sends it again,
so that a result is neither lost nor mistaken for that of another worker. Results that cannot be written now are
deferred. The worker counts all these runs as held, so it claims less while they cannot be written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from random import random
from time import monotonic
from typing import Any

from holdfast.domain.errors import HoldfastError
from holdfast.domain.execution import Ended, Settled, TakenOver
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.settling import Failed, HandedBack, NotBegun, Outcome, Succeeded, is_readable, settle
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.values import RELEASED, Acknowledgement, AttemptRef, Claim, Settlement
from holdfast.observe import emit, is_subscribed
from holdfast.sql import attempts, leases
from holdfast.sql.locks import Blocked
from holdfast.sql.statement import Op
from holdfast.worker.figures import Figures
from holdfast.worker.session import WorkerSession

BATCH = 1000
# How long results wait for others while more runs are being executed.
WINDOW = 0.003
# How long deferred results wait before they are checked again.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
# How many attempts are remembered about which a notification would come too late.
LATE = 1000
# How many batches are checked for locks before they are written, after the last one in which a result was blocked.
CHECKED_BATCHES = 10


def about(claim: Claim, worker_id: str, status: str) -> dict[str, Any]:
    """Return the fields of every log line about a run."""
    return {
        "run_id": claim.run_id,
        "payload_hash": claim.payload_hash.hex(),
        "worker_id": worker_id,
        "status": str(status),
        "attempt_count": claim.number,
        "task": claim.task,
        "queue": claim.queue,
    }


class AttemptResults:
    """The results of one session. `again` is called for each run that will be attempted again: its queue and its delay.

    With `quietly`, for a worker that performs its runs inline, claims and successes are logged as events of their own,
    at debug level. `returning` are the attempts that are returned to their queues, until the database acknowledges it.
    `late` are those that this session found or returned without a notification: one that still arrives is ignored.
    """

    def __init__(
        self,
        session: WorkerSession,
        again: Callable[[str | None, float], None],
        *,
        quietly: bool = False,
        figures: Figures | None = None,
    ) -> None:
        self.session = session
        self.pending = PendingResults()
        self.returning: set[AttemptRef] = set()
        self.late: deque[AttemptRef] = deque(maxlen=LATE)
        self._again = again
        self._figures = figures
        self._success = "run.settled_inline" if quietly else "run.settled"

    def report(self, ended: Sequence[Ended], executor: str | None = None) -> None:
        """Accept how runs ended from an executor. Runs that this session does not hold any more are ignored.

        `executor` is its name if the worker is registered with another one.
        """
        held = self.session.held
        settlements = []
        for claim, outcome in ended:
            if held.get(claim.run_id) is not claim:
                continue
            if isinstance(outcome, Succeeded):  # the common case first
                settlements.append(settle(claim, outcome, 0.0))
            elif isinstance(outcome, TakenOver):
                held.pop(claim.run_id)
                emit("run.taken_over", **about(claim, self.session.id, Status.RUNNING))
            elif isinstance(outcome, Settled):
                held.pop(claim.run_id)
                self.session.completed += 1
                if self._figures is not None:
                    self._figures.ended(claim, Status.SUCCEEDED)
                if is_subscribed(self._success):
                    self._log(self._success, claim, Status.SUCCEEDED, None)
            elif isinstance(outcome, NotBegun):
                self.release([claim])
            else:
                settlements.append(settle(claim, outcome, random()))
        self.pending.put(settlements if executor is None else [one._replace(executor=executor) for one in settlements])

    def release(self, claims: Iterable[Claim]) -> None:
        """Return runs that have not begun to their queues, without recording an attempt.

        They are not held from now on. Once they are back, the same attempt of a run may be claimed again, even by this
        worker, and must not be mistaken for the one that was given back.
        """
        claims = list(claims)
        for claim in claims:
            self.session.held.pop(claim.run_id, None)
            self.returning.add(claim.ref)
            emit("run.released", **about(claim, self.session.id, Status.PENDING))
        self._end(claims, NotBegun())

    def keep(self, claims: Sequence[Claim]) -> None:
        """Do not return these attempts, which were claimed just now."""
        if self.returning:
            self.pending.keep(claims)
            self.returning.difference_update(claim.ref for claim in claims)

    def hand_back_all(self) -> int:
        """Hand back the runs that have begun and not ended; return how many."""
        left = self._unfinished()
        self._end(left, HandedBack())
        return len(left)

    def give_up(self, why: str) -> None:
        """End the runs of a lost session, which were killed, as crashed. The fence decides whether that is written."""
        error = {"class": "LeaseLost", "message": f"the worker stopped the run: {why}", "traceback": None}
        self._end(self._unfinished(), Failed(error, reason=ReasonCode.CRASH, elapsed=None))

    def _end(self, claims: Iterable[Claim], outcome: Outcome) -> None:
        self.pending.put([settle(claim, outcome, random()) for claim in claims])

    def _unfinished(self) -> list[Claim]:
        ended = {settlement.ref.run_id for settlement in self.pending.unsettled()}
        return [claim for run_id, claim in self.session.held.items() if run_id not in ended]

    def return_unknown_leases(self, refs: Iterable[AttemptRef]) -> None:
        """Return leases that the database assigns to this session, and that it does not know, to their queues.

        An attempt that is being returned is left out: returned a second time, after it was claimed again, it would lose
        its lease while it is executed.
        """
        for ref in [ref for ref in refs if ref not in self.returning]:
            self.returning.add(ref)
            self.late.append(ref)
            emit(
                "lease.returned",
                run_id=ref.run_id,
                payload_hash=None,
                worker_id=self.session.id,
                status=str(Status.RUNNING),
                attempt_count=ref.number,
            )
            returned = Settlement(
                ref, AttemptStatus.CANCELLED, None, excuse=True, reason=ReasonCode.HANDED_BACK, begun=False
            )
            self.pending.put([returned])

    def settled(self, settlements: Sequence[Settlement], acks: Sequence[Acknowledgement]) -> None:
        """Process the acknowledgements of these results."""
        logs_success = is_subscribed(self._success)
        held = self.session.held
        for settlement, ack in zip(settlements, acks, strict=True):
            run_id, number = settlement.ref
            if not settlement.begun:
                self.returning.discard(settlement.ref)
            if ack.status == RELEASED:
                continue
            claim = held.get(run_id)
            if claim is not None and claim.number == number and settlement.begun:
                del held[run_id]
            else:
                claim = None
            if ack.accepted:
                if ack.outcome is None:
                    self._again(claim.queue if claim else None, settlement.delay)
                elif ack.outcome == Status.FAILED:
                    self.session.failed += 1
                else:
                    self.session.completed += 1
            if claim is None:
                continue
            if self._figures is not None:
                self._figures.ended(claim, ack.outcome or Status.PENDING if ack.accepted else "FENCED")
            if not ack.accepted:
                self._log("run.refused", claim, "FENCED", settlement)
            elif ack.outcome != Status.SUCCEEDED:
                timed = settlement if settlement.elapsed is not None else settlement._replace(elapsed=ack.elapsed)
                self._log("run.settled", claim, ack.outcome or Status.PENDING, timed)
            elif logs_success:
                self._log(self._success, claim, Status.SUCCEEDED, settlement)

    def began(self, claims: Sequence[Claim]) -> None:
        """Note that these are being performed."""
        if self._figures is not None:
            self._figures.started(claims)
        event = "run.claimed_inline" if self._success == "run.settled_inline" else "run.claimed"
        for claim in claims:
            if claim.policy is not None and not is_readable(claim.policy):
                fields = about(claim, self.session.id, Status.RUNNING)
                emit("run.policy_unreadable", policy=claim.policy, **fields)
        if is_subscribed(event):
            for claim in claims:
                emit(event, **about(claim, self.session.id, Status.RUNNING))

    def _log(self, event: str, claim: Claim, status: str, settlement: Settlement | None) -> None:
        fields = about(claim, self.session.id, status)
        if settlement is not None:
            if settlement.elapsed is not None:
                fields["elapsed"] = round(settlement.elapsed, 6)
            if settlement.reason:
                fields["reason"] = settlement.reason
            if settlement.error:
                fields["error"] = f"{settlement.error['class']}: {settlement.error['message']}"
            if status == Status.PENDING:
                fields["delay"] = settlement.delay
        emit(event, **fields)

    def clear_up(self) -> Op[tuple[set[AttemptRef], list[AttemptRef]]]:
        """After a round trip without a response: find out which results were written, and which leases are held."""
        doubtful = [settlement.ref for settlement in self.pending.doubtful]
        written = yield from attempts.ended_by(self.session.id, doubtful)
        return written, (yield from leases.held(self.session.id))

    def cleared_up(self, written: set[AttemptRef], held: Iterable[AttemptRef]) -> None:
        for ref in self.pending.resolve(written):
            claim = self.session.held.get(ref.run_id)
            if claim is not None and claim.number == ref.number:
                del self.session.held[ref.run_id]
        self.return_unknown_leases(ref for ref in held if ref.run_id not in self.session.held)


def unstorable(settlement: Settlement, refusal: Exception | None) -> Settlement:
    """Return the attempt as failed, because its result cannot be stored.

    The message of the database is left out: it might repeat the whole result.
    """
    ours = isinstance(refusal, HoldfastError)
    error = {
        "class": type(refusal).__name__ if ours else "ResultNotStorable",
        "message": str(refusal) if ours else "the database rejected the outcome of this attempt",
        "traceback": None,
    }
    return Settlement(
        settlement.ref,
        AttemptStatus.FAILED,
        Status.FAILED,
        task=settlement.task,
        elapsed=settlement.elapsed,
        error=error,
    )


class PendingResults:
    """Results that the database has not acknowledged: `waiting` for the next round trip, `doubtful` and `deferred`.

    A doubtful result was sent, and no response came: it may have been written or not.
    """

    def __init__(self) -> None:
        self.waiting: deque[Settlement] = deque()
        self._since = 0.0
        self.doubtful: list[Settlement] = []
        self.deferred = Deferred()

    def put(self, settlements: Iterable[Settlement]) -> None:
        if not self.waiting:
            self._since = monotonic()
        self.waiting.extend(settlements)

    def wait(self, others: bool) -> float:
        """Return how many seconds the oldest result may still wait; `others` if more runs are being executed."""
        if not others or len(self.waiting) >= BATCH:
            return 0.0
        return max(0.0, self._since + WINDOW - monotonic())

    def take(self) -> list[Settlement]:
        if len(self.waiting) <= BATCH:
            taken = list(self.waiting)
            self.waiting.clear()
            return taken
        return [self.waiting.popleft() for _ in range(BATCH)]

    def unsettled(self) -> list[Settlement]:
        """Return all results that the database may not have yet."""
        return [*self.waiting, *self.doubtful, *self.deferred.everything()]

    def doubt(self, settlements: Sequence[Settlement]) -> None:
        """Note that these were sent without a response."""
        self.doubtful.extend(settlements)

    def keep(self, claims: Iterable[Claim]) -> None:
        """Cancel pending hand-backs of attempts that were claimed just now."""
        refs = {claim.ref for claim in claims}
        self.waiting = deque(one for one in self.waiting if one.begun or one.ref not in refs)

    def resolve(self, written: set[AttemptRef]) -> list[AttemptRef]:
        """Forget the doubtful results that were written and return them; the others are sent again."""
        again = [s for s in self.doubtful if s.ref not in written]
        done = [s.ref for s in self.doubtful if s.ref in written]
        self.doubtful.clear()
        self.put(again)
        return done


class Deferred:
    """Results that cannot be written yet: another transaction holds a lock they need, or the server rejected them.

    Their leases are held while other results are written. A result that is blocked by locks is checked again without
    waiting for those locks; a result that the server rejected is retried in its own transaction.
    """

    def __init__(self) -> None:
        self.locked: list[Settlement] = []
        self.unexplained: list[Settlement] = []
        self.refused: list[Settlement] = []
        self._checks = 0
        self._jobs: set[str] = set()
        self.due_at = inf
        """When to check them again; infinity if there are none."""
        self._pause = FIRST_PAUSE

    def __len__(self) -> int:
        return len(self.locked) + len(self.unexplained) + len(self.refused)

    def everything(self) -> list[Settlement]:
        return [*self.locked, *self.unexplained, *self.refused]

    def add_locked(
        self, settlements: Iterable[Settlement], why: Iterable[Blocked] = (), *, again: bool = False
    ) -> None:
        """Add results that wait for locks, for the first time or `again`.

        If a whole job is locked, its later results are deferred as well. `elsewhere` means that a lock is not on a job,
        so results that follow may wait for the same lock: some batches are checked before they are written.
        """
        self._schedule()
        self.locked.extend(settlements)
        for one in why:
            if one.with_job and one.job_id is not None:
                self._jobs.add(one.job_id)
            elif not again:
                self._checks = CHECKED_BATCHES

    @property
    def elsewhere(self) -> bool:
        return self._checks > 0

    def found_free(self) -> None:
        """Note that no result of a batch was blocked. After several such batches, the next are written unchecked."""
        self._checks = max(0, self._checks - 1)

    def add_unexplained(self, settlements: Iterable[Settlement]) -> None:
        """Add results that are blocked by a lock that could not be found. They are retried one by one."""
        self._schedule()
        self.unexplained.extend(settlements)

    def add_refused(self, settlement: Settlement) -> None:
        """Add a result that the server rejected for a reason other than its values."""
        self._schedule()
        self.refused.append(settlement)

    def keep_back(self, settlements: Sequence[Settlement], job_of: Callable[[str], str | None]) -> list[Settlement]:
        """Return the results that may be written now, and defer those whose jobs are known to be locked."""
        if not self._jobs:
            return list(settlements)
        free = []
        for settlement in settlements:
            if job_of(settlement.ref.run_id) in self._jobs:
                self.locked.append(settlement)
            else:
                free.append(settlement)
        return free

    def take(self) -> tuple[list[Settlement], list[Settlement], list[Settlement]]:
        """Take all deferred results, to check them now: blocked by known locks, by unknown locks, and rejected.

        Until a result can be written, the interval between checks grows.
        """
        taken = self.locked, self.unexplained, self.refused
        self.locked, self.unexplained, self.refused = [], [], []
        self._jobs = set()
        self.due_at = inf
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        return taken

    def relax(self) -> None:
        """Reset the interval: a result was written."""
        self._pause = FIRST_PAUSE

    def _schedule(self) -> None:
        if not len(self):
            self.due_at = monotonic() + self._pause
