"""JSON documents of runs, attempts and events."""

from __future__ import annotations

from typing import Any

from holdfast.domain.records import RUNNER_DETAILS, AttemptRecord, EventRecord
from holdfast.domain.times import written
from holdfast.domain.values import RunRecord


def run_document(run: RunRecord) -> dict[str, Any]:
    path = f"/runs/{run.id}"
    return {
        "run_id": run.id,
        "model": run.task,
        "status": str(run.status),
        "parameters": run.parameters,
        "payload_hash": run.payload_hash,
        "queue": run.queue,
        "priority": run.priority,
        "created_at": written(run.created_at),
        "run_after": written(run.run_after),
        "started_at": written(run.started_at),
        "finished_at": written(run.finished_at),
        "attempt_count": run.attempt_count,
        "max_attempts": run.max_attempts,
        "reason": run.reason,
        "progress": run.progress,
        "last_error": run.last_error,
        "result_ref": run.result_ref,
        "lease_owner": run.lease_owner,
        "lease_expires_at": written(run.lease_expires_at),
        "cancel_requested_at": written(run.cancel_requested_at),
        "job_id": run.job_id,
        "parent_id": run.parent_id,
        "concurrency_key": run.concurrency_key,
        "tags": list(run.tags),
        "links": {"self": path, "result": f"{path}/result", "events": f"{path}/events"},
    }


def attempt_document(attempt: AttemptRecord) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "status": attempt.status,
        "executor": attempt.executor,
        "worker_id": attempt.worker_id,
        "claimed_at": written(attempt.claimed_at),
        "started_at": written(attempt.started_at),
        "finished_at": written(attempt.finished_at),
        "exit_code": attempt.exit_code,
        "reason": attempt.reason,
        "error": attempt.error,
        "progress": attempt.progress,
        "result_ref": attempt.result_ref,
        "heartbeat_at": written(attempt.heartbeat_at),
        **{name: getattr(attempt, name) for name in RUNNER_DETAILS},
    }


def event_document(event: EventRecord) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "type": event.type,
        "from": event.from_status,
        "to": event.to_status,
        "reason": event.reason,
        "at": written(event.at),
        "attempt": event.attempt,
    }
