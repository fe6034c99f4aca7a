"""Documents of the API converted back to the records that the other clients return."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.domain.records import AttemptRecord, EventRecord, LogRecord, QueueRecord, Reason, WorkerRecord
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None


def run(document: dict[str, Any]) -> RunRecord:
    found = dict(document)
    return RunRecord(
        id=found["run_id"],
        task=found["model"],
        status=Status(found["status"]),
        parameters=found["parameters"],
        payload_hash=found["payload_hash"],
        queue=found["queue"],
        priority=found["priority"],
        created_at=datetime.fromisoformat(found["created_at"]),
        run_after=_time(found.get("run_after")),
        started_at=_time(found["started_at"]),
        finished_at=_time(found["finished_at"]),
        attempt_count=found["attempt_count"],
        max_attempts=found["max_attempts"],
        reason=found.get("reason"),
        progress=found["progress"],
        last_error=found["last_error"],
        result_ref=found["result_ref"],
        lease_owner=found["lease_owner"],
        lease_expires_at=_time(found["lease_expires_at"]),
        cancel_requested_at=_time(found.get("cancel_requested_at")),
        job_id=found["job_id"],
        parent_id=found.get("parent_id"),
        concurrency_key=found.get("concurrency_key"),
        tags=tuple(found["tags"]),
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
    times = {name: _time(document[name]) for name in ("claimed_at", "started_at", "finished_at")}
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
