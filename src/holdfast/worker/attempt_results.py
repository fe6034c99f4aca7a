"""AttemptResults: from what an executor reports to what the database has accepted.

An ending is kept until the database has said what became of it. One that was sent without an answer is in doubt: it may
have been written. Asking tells, so that it is neither lost nor taken for somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from holdfast.domain.execution import Ended, Settled, TakenOver
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.settling import Failed, HandedBack, NotBegun
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.values import RELEASED, Acknowledgement, AttemptRef, Claim, Settlement
from holdfast.observe import emit, heard
from holdfast.sql import attempts, leases
from holdfast.sql.statement import Op
from holdfast.worker.figures import Figures
from holdfast.worker.pending_results import PendingResults
from holdfast.worker.session import WorkerSession


def about(claim: Claim, worker_id: str, status: str) -> dict[str, Any]:
    """What every line about a run has."""
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
    """The results of one session. `again` hears of each run that will be attempted again: its queue and its delay.

    With `quietly`, for runs that are performed inline, successes are told under a name of their own, which nobody
    listens to as a rule.
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
        self._again = again
        self._figures = figures
        self._success = "run.settled_inline" if quietly else "run.settled"

    def report(self, ended: Sequence[Ended], executor: str | None = None) -> None:
        """How runs ended, as an executor tells it. What is not held any more is nobody's business.

        `executor` names it if it is not the one that the worker is registered with.
        """
        held = self.session.held
        known = [one for one in ended if held.get(one.claim.run_id) is one.claim]
        for one in known:
            if isinstance(one.outcome, TakenOver):
                held.pop(one.claim.run_id)
                emit("run.taken_over", **about(one.claim, self.session.id, Status.RUNNING))
            elif isinstance(one.outcome, Settled):
                held.pop(one.claim.run_id)
                self.session.completed += 1
                if self._figures is not None:
                    self._figures.ended(one.claim, Status.SUCCEEDED)
                if heard(self._success):
                    self._tell(self._success, one.claim, Status.SUCCEEDED, None)
        self.pending.add(known, executor)

    def release(self, claims: Iterable[Claim]) -> None:
        """Return runs that have not begun to their queues, without recording an attempt.

        They are not held from now on. Once they are back, the same attempt of a run may be claimed again, even by this
        worker, and must not be mistaken for the one that was given back.
        """
        claims = list(claims)
        for claim in claims:
            self.session.held.pop(claim.run_id, None)
            emit("run.released", **about(claim, self.session.id, Status.PENDING))
        self.pending.add([Ended(claim, NotBegun()) for claim in claims])

    def hand_back_all(self) -> int:
        """Hand back the runs that have begun and not ended; return how many."""
        left = self._unfinished()
        self.pending.add([Ended(claim, HandedBack()) for claim in left])
        return len(left)

    def give_up(self, why: str) -> None:
        """The session is lost: whatever has not ended was killed, and counts as crashed if that still counts."""
        error = {"class": "LeaseLost", "message": f"the worker stopped the run: {why}", "traceback": None}
        self.pending.add(
            [Ended(claim, Failed(error, reason=ReasonCode.CRASH, elapsed=None)) for claim in self._unfinished()]
        )

    def _unfinished(self) -> list[Claim]:
        ended = {settlement.ref.run_id for settlement in self.pending.unsettled()}
        return [claim for run_id, claim in self.session.held.items() if run_id not in ended]

    def return_unknown_leases(self, refs: Iterable[AttemptRef]) -> None:
        """Leases that are ours although we never heard of them go back unused."""
        for ref in refs:
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
        """The database has judged these."""
        telling = heard(self._success)
        held = self.session.held
        for settlement, ack in zip(settlements, acks, strict=True):
            if ack.status == RELEASED:
                continue
            claim = held.get(settlement.ref.run_id)
            if claim is not None and claim.number == settlement.ref.number and settlement.begun:
                del held[claim.run_id]
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
                self._tell("run.refused", claim, "FENCED", settlement)
            elif ack.outcome != Status.SUCCEEDED:
                timed = settlement if settlement.elapsed is not None else settlement._replace(elapsed=ack.elapsed)
                self._tell("run.settled", claim, ack.outcome or Status.PENDING, timed)
            elif telling:
                self._tell(self._success, claim, Status.SUCCEEDED, settlement)

    def began(self, claims: Sequence[Claim]) -> None:
        """These are being performed."""
        if self._figures is not None:
            self._figures.started(claims)
        event = "run.claimed_inline" if self._success == "run.settled_inline" else "run.claimed"
        if heard(event):
            for claim in claims:
                emit(event, **about(claim, self.session.id, Status.RUNNING))

    def _tell(self, event: str, claim: Claim, status: str, settlement: Settlement | None) -> None:
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
        """After a turn without an answer: which results were written, and which leases do we hold unawares?"""
        doubtful = [settlement.ref for settlement in self.pending.doubtful]
        written = yield from attempts.ended_by(self.session.id, doubtful)
        return written, (yield from leases.held(self.session.id))

    def cleared_up(self, written: set[AttemptRef], held: Iterable[AttemptRef]) -> None:
        for ref in self.pending.resolve(written):
            claim = self.session.held.get(ref.run_id)
            if claim is not None and claim.number == ref.number:
                del self.session.held[ref.run_id]
        self.return_unknown_leases(ref for ref in held if ref.run_id not in self.session.held)
