"""Results: from what an executor reports to what the database has acknowledged.

A result waits a few milliseconds for others and is written with them. It is kept until the database acknowledges it.
A result that was sent without a response is in doubt: the worker asks whether it was written before it sends it again,
so that a result is neither lost nor mistaken for that of another worker. Results that cannot be written now are
deferred (`pending_results`). The worker counts all these runs as held, so it claims less while they cannot be written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import random
from typing import Any

from holdfast.domain.errors import HoldfastError
from holdfast.domain.execution import Ended, Settled, TakenOver
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.settling import Failed, HandedBack, NotBegun, Outcome, Succeeded, is_readable, settle
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.values import RELEASED, Acknowledgement, AttemptRef, Claim, Settlement
from holdfast.observe import emit, is_subscribed
from holdfast.sql import attempts, leases
from holdfast.sql.statement import Op
from holdfast.worker.figures import Figures
from holdfast.worker.pending_results import PendingResults
from holdfast.worker.session import WorkerSession

# How many attempts are remembered about which a notification would come too late.
LATE = 1000


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
            self.pending.cancel_hand_backs(claims)
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
