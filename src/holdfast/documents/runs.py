"""JSON documents of runs, and of their attempts, events and log lines."""

from __future__ import annotations

from holdfast.documents.shapes import (
    COUNT,
    ID,
    MAYBE_ID,
    MAYBE_OBJECT,
    MAYBE_TEXT,
    MAYBE_TIME,
    OBJECT,
    STATUS,
    TEXT,
    TEXTS,
    TIME,
    WHOLE,
    Field,
    Part,
    Shape,
    nullable,
)
from holdfast.domain.records import RUNNER_DETAILS, AttemptRecord, EventRecord, LogRecord
from holdfast.domain.states import AttemptStatus
from holdfast.domain.values import RunRecord

SHA256: Part = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def _links(run: RunRecord) -> dict[str, str]:
    path = f"/runs/{run.id}"
    return {"self": path, "result": f"{path}/result", "events": f"{path}/events"}


run_document = Shape(
    RunRecord,
    "One invocation of a task.",
    {
        "run_id": Field(ID, "id"),
        "model": Field(TEXT, "task"),
        "status": STATUS,
        "parameters": OBJECT,
        "payload_hash": SHA256,
        "queue": TEXT,
        "priority": {"type": "integer", "minimum": -100, "maximum": 100},
        "created_at": TIME,
        "run_after": MAYBE_TIME,
        "started_at": MAYBE_TIME,
        "finished_at": MAYBE_TIME,
        "attempt_count": COUNT,
        "max_attempts": {"type": "integer", "minimum": 1},
        "reason": MAYBE_TEXT,
        "progress": MAYBE_OBJECT,
        "last_error": MAYBE_TEXT,
        "result_ref": MAYBE_TEXT,
        "lease_owner": MAYBE_ID,
        "lease_expires_at": MAYBE_TIME,
        "cancel_requested_at": MAYBE_TIME,
        "job_id": MAYBE_ID,
        "parent_id": MAYBE_ID,
        "concurrency_key": MAYBE_TEXT,
        "tags": Field(TEXTS, write=list, read=tuple),
        "links": Field({"type": "object", "additionalProperties": TEXT, "required": ["self", "result"]}, derive=_links),
    },
)

attempt_document = Shape(
    AttemptRecord,
    "One execution of a run under one lease.",
    {
        "number": {"type": "integer", "minimum": 1},
        "status": {"type": "string", "enum": [str(status) for status in AttemptStatus]},
        "executor": MAYBE_TEXT,
        "worker_id": MAYBE_ID,
        "claimed_at": MAYBE_TIME,
        "started_at": MAYBE_TIME,
        "finished_at": MAYBE_TIME,
        "exit_code": nullable(WHOLE),
        "reason": MAYBE_TEXT,
        "error": nullable({"$ref": "#/components/schemas/Error"}),
        "progress": MAYBE_OBJECT,
        "result_ref": MAYBE_TEXT,
        "heartbeat_at": MAYBE_TIME,
        **dict.fromkeys(RUNNER_DETAILS, MAYBE_TEXT),
    },
    outcome=None,
)

event_document = Shape(
    EventRecord,
    "Something that happened to a run.",
    {
        "seq": {"type": "integer", "minimum": 1},
        "type": TEXT,
        "from": Field(MAYBE_TEXT, "from_status"),
        "to": Field(MAYBE_TEXT, "to_status"),
        "reason": MAYBE_TEXT,
        "at": TIME,
        "attempt": COUNT,
    },
)

log_document = Shape(
    LogRecord, "A line that a run wrote.", {"seq": COUNT, "at": TIME, "attempt": COUNT, "level": TEXT, "message": TEXT}
)
