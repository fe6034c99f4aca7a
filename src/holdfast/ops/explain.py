"""Explain: why a run is in its state, and what it is waiting for."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.execution import INLINE
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.records import Reason
from holdfast.domain.states import Status
from holdfast.domain.tasks import registry
from holdfast.domain.values import RunRecord
from holdfast.ops.history import get
from holdfast.sql import dependencies
from holdfast.sql import explain as explain_sql
from holdfast.sql.dependencies import Awaited
from holdfast.sql.explain import AHEAD_AT_MOST, Situation
from holdfast.sql.statement import Op

NAMED = 5


def explain(run_id: str) -> Op[list[Reason]]:
    """Return why the run is in its state, the decisive reason first."""
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
        return Reason(ReasonCode.STOPPING, {"requested_at": run.cancel_requested_at, "reason": run.reason})
    if run.status is Status.RUNNING:
        lease = {"worker_id": run.lease_owner, "lease_expires_at": run.lease_expires_at}
        return Reason(ReasonCode.RUNNING, {"attempt": run.attempt_count, **lease})
    return Reason(ReasonCode.ENDED, {"status": str(run.status), "detail": run.reason or run.last_error})


def _pending(at: Situation, awaited: Sequence[Awaited]) -> list[Reason]:
    reasons: list[Reason] = []
    if at.blockers:
        waits_for = [{"id": one.id, "what": one.what, "status": one.status} for one in awaited]
        reasons.append(Reason(ReasonCode.DEPENDENCIES, {"count": at.blockers, "waits_for": waits_for}))
    if at.due_in is not None and at.due_in > 0 and at.due_at is not None:
        code = at.waiting_for if at.waiting_for not in (None, ReasonCode.DEPENDENCIES) else ReasonCode.SCHEDULED
        reasons.append(Reason(str(code), {"due_at": at.due_at}))
    if at.paused_at is not None:
        paused = {"paused_by": at.paused_by, "paused_at": at.paused_at, "reason": at.pause_reason}
        reasons.append(Reason(ReasonCode.PAUSED, {"queue": at.queue, **paused}))
    if at.workers == 0:
        reasons.append(Reason(ReasonCode.NO_WORKER))
    elif at.workers_of_queue == 0:
        reasons.append(Reason(ReasonCode.NO_WORKER_FOR_QUEUE, {"queue": at.queue, "workers": at.workers}))
    elif at.workers_of_task == 0:
        reasons.append(_no_worker_for_task(at))
    elif at.workers_away == at.workers_of_task:
        reasons.append(Reason(ReasonCode.EXECUTOR_AWAY, {"queue": at.queue, "why": at.away}))
    if at.ahead:
        more = at.ahead >= AHEAD_AT_MOST
        reasons.append(Reason(ReasonCode.BEHIND, {"queue": at.queue, "ahead": at.ahead, "or_more": more}))
    if not reasons and at.free_slots <= 0:
        reasons.append(Reason(ReasonCode.BUSY))
    return reasons or [Reason(ReasonCode.NEXT)]


def _no_worker_for_task(at: Situation) -> Reason:
    """Report a missing executor if this process knows the task and its executor; otherwise a missing task."""
    task = registry.find(at.task)
    executor = task.executor if task is not None else None
    if executor is not None and executor != INLINE and executor not in at.executors:
        fields = {"queue": at.queue, "task": at.task, "executor": executor}
        return Reason(ReasonCode.NO_WORKER_FOR_EXECUTOR, fields)
    return Reason(ReasonCode.NO_WORKER_FOR_TASK, {"queue": at.queue, "task": at.task})
