"""Explain: the exact thing that a run waits for."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.reasons import ReasonCode
from holdfast.domain.records import Reason
from holdfast.domain.states import Status
from holdfast.domain.times import written
from holdfast.domain.values import RunRecord
from holdfast.ops.read import get
from holdfast.sql import dependencies
from holdfast.sql import explain as explain_sql
from holdfast.sql.dependencies import Awaited
from holdfast.sql.explain import AHEAD_AT_MOST, Situation
from holdfast.sql.statement import Op

NAMED = 5


def explain(run_id: str) -> Op[list[Reason]]:
    """Why the run is where it is, the decisive reason first."""
    run = yield from get(run_id)
    if run.status is not Status.PENDING:
        return [_settled(run)]
    situation = yield from explain_sql.situation(run_id)
    if situation is None:
        return [_settled(run)]
    awaited = (yield from dependencies.awaited_by(run_id, NAMED)) if situation.blockers else []
    return _pending(situation, awaited)


def _settled(run: RunRecord) -> Reason:
    if run.status is Status.RUNNING and run.cancel_requested_at:
        return Reason(ReasonCode.STOPPING, f"asked to stop at {written(run.cancel_requested_at)}: {run.reason}")
    if run.status is Status.RUNNING:
        until = f", lease until {written(run.lease_expires_at)}" if run.lease_expires_at else ""
        return Reason(ReasonCode.RUNNING, f"attempt {run.attempt_count} runs on worker {run.lease_owner}{until}")
    detail = run.reason or run.last_error
    return Reason(ReasonCode.ENDED, f"it ended {run.status}" + (f": {detail}" if detail else ""))


def _pending(at: Situation, awaited: Sequence[Awaited]) -> list[Reason]:
    reasons: list[Reason] = []
    if at.blockers:
        named = ", ".join(f"{one.id} ({one.what}, {one.status})" for one in awaited)
        more = ", ..." if at.blockers > len(awaited) else ""
        reasons.append(Reason(ReasonCode.DEPENDENCIES, f"waits for {at.blockers} others to end: {named}{more}"))
    if at.due_in is not None and at.due_in > 0 and at.due_at is not None:
        word = "the next attempt" if at.waiting_for == ReasonCode.RETRY else "its time"
        reasons.append(Reason(at.waiting_for or ReasonCode.SCHEDULED, f"waits for {word} at {written(at.due_at)}"))
    if at.paused_at is not None:
        why = f" ({at.pause_reason})" if at.pause_reason else ""
        paused = f"queue {at.queue} was paused by {at.paused_by} at {written(at.paused_at)}{why}"
        reasons.append(Reason(ReasonCode.PAUSED, paused))
    if at.workers == 0:
        reasons.append(Reason(ReasonCode.NO_WORKER, "no worker is alive; start one with: holdfast worker"))
    elif at.workers_of_queue == 0:
        reasons.append(
            Reason(ReasonCode.NO_WORKER_FOR_QUEUE, f"none of {at.workers} live workers serves queue {at.queue}")
        )
    elif at.workers_of_task == 0:
        reasons.append(
            Reason(
                ReasonCode.NO_WORKER_FOR_TASK, f"no live worker of queue {at.queue} has the task {at.task} registered"
            )
        )
    if at.ahead:
        amount = f"{at.ahead}" if at.ahead < AHEAD_AT_MOST else f"{AHEAD_AT_MOST} or more"
        reasons.append(Reason(ReasonCode.BEHIND, f"{amount} ready runs of queue {at.queue} are ahead of it"))
    if not reasons and at.free_slots <= 0:
        reasons.append(Reason(ReasonCode.BUSY, "every slot of the workers that could take it is busy"))
    return reasons or [Reason(ReasonCode.NEXT, "ready; it will be claimed at the next poll")]
