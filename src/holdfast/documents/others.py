"""JSON documents of jobs, queues, workers, tasks and other records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from holdfast.documents.runs import SHA256
from holdfast.documents.shapes import (
    COUNT,
    ID,
    MAYBE_ID,
    MAYBE_TEXT,
    MAYBE_TIME,
    NUMBER,
    OBJECT,
    STATUS,
    TEXT,
    TEXTS,
    TIME,
    WHOLE,
    Field,
    Shape,
    nullable,
    record,
)
from holdfast.domain.jobs import JobRecord
from holdfast.domain.policies import Retry
from holdfast.domain.records import (
    AttemptRecord,
    Provenance,
    QueueRecord,
    Reason,
    ResultRecord,
    TaskSummary,
    WorkerFacts,
    WorkerRecord,
)
from holdfast.domain.states import Status
from holdfast.domain.tasks import Task
from holdfast.domain.times import written

COUNTED = ("created", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "retried", "lost")
HASHED_AS = "sha-256 of RFC 8785 JSON"


job_document = Shape(
    JobRecord,
    "A group of runs with a common outcome.",
    {
        "job_id": Field(ID, "id"),
        "name": TEXT,
        "status": STATUS,
        "description": MAYBE_TEXT,
        "created_at": TIME,
        "started_at": MAYBE_TIME,
        "finished_at": MAYBE_TIME,
        "deadline_at": MAYBE_TIME,
        "cancel_requested_at": MAYBE_TIME,
        "reason": MAYBE_TEXT,
        "total_tasks": Field(COUNT, "total"),
        "completed_tasks": Field(COUNT, "succeeded"),
        "failed_tasks": Field(COUNT, "failed"),
        "cancelled_tasks": Field(COUNT, "cancelled"),
        "submitted_by": MAYBE_TEXT,
        "links": Field(
            {"type": "object", "additionalProperties": TEXT, "required": ["self", "tasks"]},
            derive=lambda job: {"self": f"/jobs/{job.id}", "tasks": f"/jobs/{job.id}/tasks"},
        ),
    },
    # Only operations use these attributes; documents do not contain them.
    broken=0,
    first_tasks=0,
)

queue_document = Shape(
    QueueRecord,
    "A queue that has live runs, or was paused.",
    {
        "name": TEXT,
        "ready": COUNT,
        "waiting": COUNT,
        "running": COUNT,
        "oldest_ready_at": MAYBE_TIME,
        "paused": Field({"type": "boolean"}, derive=lambda queue: queue.paused_at is not None),
        "paused_at": MAYBE_TIME,
        "paused_by": MAYBE_TEXT,
        "pause_reason": MAYBE_TEXT,
    },
)

worker_document = Shape(
    WorkerRecord,
    "A process that executes runs.",
    {
        "id": ID,
        "status": {"type": "string", "enum": ["active", "idle", "draining", "stopped"]},
        "name": TEXT,
        "hostname": TEXT,
        "pid": WHOLE,
        "executor": TEXT,
        "version": TEXT,
        "slots": WHOLE,
        "running": COUNT,
        "queues": nullable(TEXTS),
        "tasks": nullable(TEXTS),
        "tasks_completed": COUNT,
        "tasks_failed": COUNT,
        "started_at": TIME,
        "heartbeat_at": TIME,
        "expires_at": TIME,
        "stopped_at": MAYBE_TIME,
    },
)


def reason_document(reason: Reason) -> dict[str, Any]:
    fields = {name: written(value) if isinstance(value, datetime) else value for name, value in reason.fields.items()}
    return {"code": reason.code, "detail": reason.detail, "fields": fields}


def read_reason(document: dict[str, Any]) -> Reason:
    fields = document.get("fields", {})
    times = {name: datetime.fromisoformat(value) for name, value in fields.items() if name.endswith("_at") and value}
    return Reason(document["code"], fields | times, document["detail"])


def about(task: Task) -> str:
    """The first line of the task's docstring."""
    return (task.fn.__doc__ or "").strip().partition("\n")[0]


def _dedupe(value: str | timedelta | float) -> str | float:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _seconds(value: timedelta | None) -> float | None:
    return value.total_seconds() if value else None


task_document = Shape(
    Task,
    "A registered callable that can be submitted.",
    {
        "name": TEXT,
        "about": Field(TEXT, derive=about),
        "queue": TEXT,
        "priority": WHOLE,
        "timeout_seconds": Field(nullable(NUMBER), "timeout", write=_seconds),
        "max_attempts": Field(WHOLE, derive=lambda task: (task.retry or Retry()).max_attempts),
        "dedupe": Field({"type": ["string", "number"]}, write=_dedupe),
        "ignore_in_hash": Field(TEXTS, write=list),
        "executor": MAYBE_TEXT,
        "tags": Field(TEXTS, write=list),
        "parameters": Field({"type": "object", "description": "A JSON Schema."}, derive=Task.schema),
    },
)

_counts_document = Shape(
    TaskSummary,
    "One model.",
    {
        "model": Field(TEXT, "task"),
        "created": COUNT,
        **{str(status): Field(COUNT, status.lower()) for status in Status},
        "retried": COUNT,
        "lost": COUNT,
        "mean_seconds": nullable(NUMBER),
    },
)
SUMMARY = record(
    "How many runs each model has had, by status.",
    {
        "items": {"type": "array", "items": _counts_document.schema},
        "total": {"type": "object", "additionalProperties": COUNT},
    },
)


def summary_document(tasks: Iterable[TaskSummary]) -> dict[str, Any]:
    """The counts of each task, and the totals."""
    shown = [_counts_document(task) for task in tasks]
    return {"items": shown, "total": {name: sum(document[name] for document in shown) for name in COUNTED}}


def _between(start: Any, end: Any) -> float | None:
    return max((end - start).total_seconds(), 0.0) if start and end else None


def _wait_seconds(found: Provenance) -> float | None:
    return _between(found.run.run_after or found.run.created_at, found.run.started_at)


def _attempts(found: Provenance) -> list[dict[str, Any]]:
    return [_attempt(attempt, found.workers.get(attempt.worker_id)) for attempt in found.attempts]


def _attempt(attempt: AttemptRecord, worker: WorkerFacts | None) -> dict[str, Any]:
    environment = (worker.environment if worker else None) or {}
    return {
        "number": attempt.number,
        "status": attempt.status,
        "executor": attempt.executor,
        "started_at": written(attempt.started_at),
        "finished_at": written(attempt.finished_at),
        "worker_id": attempt.worker_id,
        "hostname": worker.hostname if worker else None,
        "holdfast_version": worker.version if worker else None,
        "code_version": environment.get("code_version"),
        "python_version": environment.get("python_version"),
        "platform": environment.get("platform"),
        "packages": environment.get("packages"),
    }


def _result(found: ResultRecord | None) -> dict[str, Any] | None:
    if found is None:
        return None
    if found.ref is not None:
        return {"sha256": found.sha256, "size": found.size, "result_ref": found.ref}
    text = (found.text or "null").encode()
    return {"sha256": sha256(text).hexdigest(), "size": len(text), "result_ref": None}


provenance_document = Shape(
    Provenance,
    "The provenance of a result.",
    {
        "run_id": Field(ID, "run.id"),
        "model": Field(TEXT, "run.task"),
        "status": Field(STATUS.schema, "run.status", write=str),
        "parameters": Field(OBJECT, "run.parameters"),
        "payload_hash": Field(SHA256, "run.payload_hash"),
        "payload_hashed_as": Field(TEXT, derive=lambda found: HASHED_AS),
        "submitted_by": Field(MAYBE_TEXT, "run.submitted_by"),
        "parent_id": Field(MAYBE_ID, "run.parent_id"),
        "job_id": Field(MAYBE_ID, "run.job_id"),
        "created_at": Field(TIME, "run.created_at", write=written),
        "started_at": Field(MAYBE_TIME, "run.started_at", write=written),
        "finished_at": Field(MAYBE_TIME, "run.finished_at", write=written),
        "wait_seconds": Field(nullable(NUMBER), derive=_wait_seconds),
        "run_seconds": Field(
            nullable(NUMBER), derive=lambda found: _between(found.run.started_at, found.run.finished_at)
        ),
        "attempts": Field({"type": "array", "items": OBJECT}, derive=_attempts),
        "result": Field(
            nullable(record("The result.", {"sha256": SHA256, "size": COUNT, "result_ref": MAYBE_TEXT})), write=_result
        ),
    },
)
