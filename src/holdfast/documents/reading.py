"""Parse documents of the API into the records that clients return."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.domain.jobs import JobRecord
from holdfast.domain.records import AttemptRecord, EventRecord, LogRecord, QueueRecord, Reason, WorkerRecord
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None


def run(document: dict[str, Any]) -> RunRecord:
    return RunRecord(
        id=document["run_id"],
        task=document["model"],
        status=Status(document["status"]),
        parameters=document["parameters"],
        payload_hash=document["payload_hash"],
        queue=document["queue"],
        priority=document["priority"],
        created_at=datetime.fromisoformat(document["created_at"]),
        run_after=_time(document.get("run_after")),
        started_at=_time(document["started_at"]),
        finished_at=_time(document["finished_at"]),
        attempt_count=document["attempt_count"],
        max_attempts=document["max_attempts"],
        reason=document.get("reason"),
        progress=document["progress"],
        last_error=document["last_error"],
        result_ref=document["result_ref"],
        lease_owner=document["lease_owner"],
        lease_expires_at=_time(document["lease_expires_at"]),
        cancel_requested_at=_time(document.get("cancel_requested_at")),
        job_id=document["job_id"],
        parent_id=document.get("parent_id"),
        concurrency_key=document.get("concurrency_key"),
        tags=tuple(document["tags"]),
    )


def job(document: dict[str, Any]) -> JobRecord:
    """A job. `broken` and `first_tasks`, which only operations need, are not in the document."""
    return JobRecord(
        id=document["job_id"],
        name=document["name"],
        status=Status(document["status"]),
        description=document["description"],
        created_at=datetime.fromisoformat(document["created_at"]),
        started_at=_time(document["started_at"]),
        finished_at=_time(document["finished_at"]),
        deadline_at=_time(document["deadline_at"]),
        cancel_requested_at=_time(document["cancel_requested_at"]),
        reason=document["reason"],
        total=document["total_tasks"],
        succeeded=document["completed_tasks"],
        failed=document["failed_tasks"],
        cancelled=document["cancelled_tasks"],
        broken=0,
        first_tasks=0,
        submitted_by=document["submitted_by"],
    )


def event(document: dict[str, Any]) -> EventRecord:
    return EventRecord(
        document["seq"],
        document["type"],
        document["from"],
        document["to"],
        document["reason"],
        datetime.fromisoformat(document["at"]),
        document["attempt"],
    )


def log_line(document: dict[str, Any]) -> LogRecord:
    at = datetime.fromisoformat(document["at"])
    return LogRecord(document["seq"], at, document["attempt"], document["level"], document["message"])


def attempt(document: dict[str, Any]) -> AttemptRecord:
    times = {name: _time(document.get(name)) for name in ("claimed_at", "started_at", "finished_at", "heartbeat_at")}
    return AttemptRecord(**_fields(AttemptRecord, document | times))


def worker(document: dict[str, Any]) -> WorkerRecord:
    times = {name: _time(document[name]) for name in ("started_at", "heartbeat_at", "expires_at", "stopped_at")}
    return WorkerRecord(**_fields(WorkerRecord, document | times))


def queue(document: dict[str, Any]) -> QueueRecord:
    times = {name: _time(document[name]) for name in ("oldest_ready_at", "paused_at")}
    return QueueRecord(**_fields(QueueRecord, document | times))


def reason(document: dict[str, Any]) -> Reason:
    fields = document.get("fields", {})
    times = {name: _time(value) for name, value in fields.items() if name.endswith("_at")}
    return Reason(document["code"], fields | times, document["detail"])


def _fields(kind: Any, document: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that are in the document; missing ones are None."""
    return {name: document.get(name) for name in kind._fields}
