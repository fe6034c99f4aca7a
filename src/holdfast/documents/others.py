"""JSON documents of jobs, queues, workers, tasks and other records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any

from holdfast.documents.runs import run_document
from holdfast.domain.jobs import JobRecord
from holdfast.domain.policies import Retry
from holdfast.domain.records import (
    AttemptRecord,
    LogRecord,
    Provenance,
    QueueRecord,
    Reason,
    ResultRecord,
    TaskSummary,
    WorkerFacts,
    WorkerRecord,
)
from holdfast.domain.tasks import Task
from holdfast.domain.times import written

COUNTED = ("created", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "retried", "lost")
HASHED_AS = "sha-256 of RFC 8785 JSON"


def job_document(job: JobRecord) -> dict[str, Any]:
    path = f"/jobs/{job.id}"
    return {
        "job_id": job.id,
        "name": job.name,
        "status": str(job.status),
        "description": job.description,
        "created_at": written(job.created_at),
        "started_at": written(job.started_at),
        "finished_at": written(job.finished_at),
        "deadline_at": written(job.deadline_at),
        "cancel_requested_at": written(job.cancel_requested_at),
        "reason": job.reason,
        "total_tasks": job.total,
        "completed_tasks": job.succeeded,
        "failed_tasks": job.failed,
        "cancelled_tasks": job.cancelled,
        "submitted_by": job.submitted_by,
        "links": {"self": path, "tasks": f"{path}/tasks"},
    }


def log_document(line: LogRecord) -> dict[str, Any]:
    return {
        "seq": line.seq,
        "at": written(line.at),
        "attempt": line.attempt,
        "level": line.level,
        "message": line.message,
    }


def reason_document(reason: Reason) -> dict[str, Any]:
    fields = {name: written(value) if isinstance(value, datetime) else value for name, value in reason.fields.items()}
    return {"code": reason.code, "detail": reason.detail, "fields": fields}


def queue_document(queue: QueueRecord) -> dict[str, Any]:
    return {
        "name": queue.name,
        "ready": queue.ready,
        "waiting": queue.waiting,
        "running": queue.running,
        "oldest_ready_at": written(queue.oldest_ready_at),
        "paused": queue.paused_at is not None,
        "paused_at": written(queue.paused_at),
        "paused_by": queue.paused_by,
        "pause_reason": queue.pause_reason,
    }


def worker_document(worker: WorkerRecord) -> dict[str, Any]:
    return {
        "id": worker.id,
        "status": worker.status,
        "name": worker.name,
        "hostname": worker.hostname,
        "pid": worker.pid,
        "executor": worker.executor,
        "version": worker.version,
        "slots": worker.slots,
        "running": worker.running,
        "queues": worker.queues,
        "tasks": worker.tasks,
        "tasks_completed": worker.tasks_completed,
        "tasks_failed": worker.tasks_failed,
        "started_at": written(worker.started_at),
        "heartbeat_at": written(worker.heartbeat_at),
        "expires_at": written(worker.expires_at),
        "stopped_at": written(worker.stopped_at),
    }


def task_document(task: Task) -> dict[str, Any]:
    retry = task.retry or Retry()
    dedupe = task.dedupe if isinstance(task.dedupe, str | int | float) else task.dedupe.total_seconds()
    return {
        "name": task.name,
        "about": (task.fn.__doc__ or "").strip().partition("\n")[0],
        "queue": task.queue,
        "priority": task.priority,
        "timeout_seconds": task.timeout.total_seconds() if task.timeout else None,
        "max_attempts": retry.max_attempts,
        "dedupe": dedupe,
        "ignore_in_hash": list(task.ignore_in_hash),
        "executor": task.executor,
        "tags": list(task.tags),
        "parameters": task.schema(),
    }


def summary_document(tasks: Iterable[TaskSummary]) -> dict[str, Any]:
    """The counts of each task, and the totals."""
    shown = [_summary(task) for task in tasks]
    return {"items": shown, "total": {name: sum(document[name] for document in shown) for name in COUNTED}}


def _summary(task: TaskSummary) -> dict[str, Any]:
    return {
        "model": task.task,
        "created": task.created,
        "PENDING": task.pending,
        "RUNNING": task.running,
        "SUCCEEDED": task.succeeded,
        "FAILED": task.failed,
        "CANCELLED": task.cancelled,
        "retried": task.retried,
        "lost": task.lost,
        "mean_seconds": task.mean_seconds,
    }


def provenance_document(found: Provenance) -> dict[str, Any]:
    run = found.run
    shown = run_document(run)
    return {
        "run_id": run.id,
        "model": run.task,
        "status": str(run.status),
        "parameters": run.parameters,
        "payload_hash": run.payload_hash,
        "payload_hashed_as": HASHED_AS,
        "submitted_by": run.submitted_by,
        "parent_id": run.parent_id,
        "job_id": run.job_id,
        "created_at": shown["created_at"],
        "started_at": shown["started_at"],
        "finished_at": shown["finished_at"],
        "wait_seconds": _between(run.run_after or run.created_at, run.started_at),
        "run_seconds": _between(run.started_at, run.finished_at),
        "attempts": [_attempt(attempt, found.workers.get(attempt.worker_id)) for attempt in found.attempts],
        "result": _result(found.result),
    }


def _between(start: Any, end: Any) -> float | None:
    return max((end - start).total_seconds(), 0.0) if start and end else None


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
