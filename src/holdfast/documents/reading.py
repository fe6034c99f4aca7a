"""Documents of the API, read back into the records that the other clients hand out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.domain.records import AttemptRecord, EventRecord, LogRecord, QueueRecord, WorkerRecord
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None


def run(document: dict[str, Any]) -> RunRecord:
    told = dict(document)
    return RunRecord(
        id=told["run_id"],
        task=told["model"],
        status=Status(told["status"]),
        parameters=told["parameters"],
        payload_hash=told["payload_hash"],
        queue=told["queue"],
        priority=told["priority"],
        created_at=datetime.fromisoformat(told["created_at"]),
        run_after=_time(told.get("run_after")),
        started_at=_time(told["started_at"]),
        finished_at=_time(told["finished_at"]),
        attempt_count=told["attempt_count"],
        max_attempts=told["max_attempts"],
        reason=told.get("reason"),
        progress=told["progress"],
        last_error=told["last_error"],
        result_ref=told["result_ref"],
        lease_owner=told["lease_owner"],
        lease_expires_at=_time(told["lease_expires_at"]),
        cancel_requested_at=_time(told.get("cancel_requested_at")),
        job_id=told["job_id"],
        parent_id=told.get("parent_id"),
        concurrency_key=told.get("concurrency_key"),
        tags=tuple(told["tags"]),
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
    return AttemptRecord(**_told(AttemptRecord, document | times))


def worker(document: dict[str, Any]) -> WorkerRecord:
    times = {name: _time(document[name]) for name in ("started_at", "heartbeat_at", "expires_at", "stopped_at")}
    return WorkerRecord(**_told(WorkerRecord, document | times))


def queue(document: dict[str, Any]) -> QueueRecord:
    times = {name: _time(document[name]) for name in ("oldest_ready_at", "paused_at")}
    return QueueRecord(**_told(QueueRecord, document | times))


def _told(kind: Any, document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record, as the document says them; what it does not say is None."""
    return {name: document.get(name) for name in kind._fields}
