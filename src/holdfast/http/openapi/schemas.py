"""The schemas of requests and responses."""

from __future__ import annotations

from typing import Any

from holdfast.domain.records import RUNNER_DETAILS
from holdfast.domain.states import AttemptStatus, Status
from holdfast.runtime.settings import Settings
from holdfast.verbs.openapi import (
    ID,
    START_TIME,
    TEXT,
    TIME,
    WHOLE,
    Part,
    listed,
    nullable,
    record,
    ref,
    short_text,
)

NUMBER: Part = {"type": "number"}
COUNT: Part = {"type": "integer", "minimum": 0}
SHA256: Part = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
OBJECT: Part = {"type": "object"}
TEXTS: Part = {"type": "array", "items": TEXT}
STATUS: Part = {"type": "string", "enum": [str(status) for status in Status]}


DEPENDS_ON: Part = {
    "type": "array",
    "description": "Dependencies: ids of runs, or keys of tasks in the same job.",
    "items": {
        "anyOf": [
            short_text(255),
            {
                "type": "object",
                "required": ["task"],
                "properties": {"task": short_text(255), "on": {"enum": ["success", "failure", "always"]}},
                "additionalProperties": False,
            },
        ]
    },
}


def schemas(settings: Settings, models: list[str]) -> dict[str, Part]:
    """Every named schema, with the limits from the settings and the models that this server knows."""
    return {
        "RunRequest": run_request(settings, models),
        "TaskRequest": task_request(settings, models),
        "Run": RUN,
        "Job": JOB,
        "Problem": PROBLEM,
        "Event": EVENT,
        "Attempt": ATTEMPT,
        "LogLine": LOG_LINE,
        "Reason": REASON,
        "Provenance": PROVENANCE,
        "Queue": QUEUE,
        "Worker": WORKER,
        "Task": TASK,
        "Summary": SUMMARY,
        "Health": HEALTH,
        "Error": ERROR,
    }


def run_request(settings: Settings, models: list[str]) -> Part:
    key = {"type": "string", "minLength": 1, "maxLength": settings.max_key_length, "pattern": "^[!-~]+$"}
    tag = short_text(settings.max_tag_length)
    name = short_text(255)
    dedupe: Part = {
        "description": '`"active"`, `"off"`, or the maximum age in seconds of an earlier run to return. A number never '
        "finds a run that failed or was cancelled.",
        "anyOf": [{"enum": ["active", "off"]}, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e9}],
    }
    fields: dict[str, Part] = {
        "model": {"type": "string", "enum": models, "description": "The name of a registered task."},
        "parameters": {
            "type": "object",
            "description": "The arguments of the task; GET /tasks/{name} returns their schema.",
        },
        "key": key | {"description": "An idempotency key; the same as the header."},
        "queue": name,
        "priority": {
            "type": "integer",
            "minimum": -100,
            "maximum": 100,
            "description": "Higher priorities start first.",
        },
        "run_after": START_TIME,
        "dedupe": dedupe,
        "concurrency_key": name,
        "depends_on": DEPENDS_ON,
        "tags": {"type": "array", "items": tag, "maxItems": settings.max_tags},
    }
    return {
        "type": "object",
        "required": ["model"],
        "properties": {name: _or_null(schema) if name != "model" else schema for name, schema in fields.items()},
        "additionalProperties": False,
    }


def task_request(settings: Settings, models: list[str]) -> Part:
    shared = run_request(settings, models)["properties"]
    fields: dict[str, Part] = {
        "entrypoint": {"type": "string", "enum": models, "description": "The name of a registered task."},
        "kwargs": shared["parameters"],
        "key": nullable({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}),
        "depends_on": nullable(DEPENDS_ON),
        "critical": {"type": "boolean", "default": True, "description": "Whether the job fails if this task fails."},
        "max_retries": nullable({"type": "integer", "minimum": 0, "exclusiveMaximum": 1_000_000}),
        "timeout": nullable({"type": "number", "minimum": 0.001, "exclusiveMaximum": 1e9}),
        **{name: shared[name] for name in ("queue", "priority", "run_after", "tags")},
    }
    return {"type": "object", "required": ["entrypoint"], "properties": fields, "additionalProperties": False}


def _or_null(schema: Part) -> Part:
    """Allow null, which means that the option was not given."""
    return schema | {"anyOf": [*schema["anyOf"], {"type": "null"}]} if "anyOf" in schema else nullable(schema)


ERROR = record(
    "Why an attempt failed.",
    {"class": TEXT, "message": TEXT, "traceback": nullable(TEXT)},
) | {"additionalProperties": True, "required": ["class", "message"]}

RUN = record(
    "One invocation of a task.",
    {
        "run_id": ID,
        "model": TEXT,
        "status": STATUS,
        "parameters": OBJECT,
        "payload_hash": SHA256,
        "queue": TEXT,
        "priority": {"type": "integer", "minimum": -100, "maximum": 100},
        "created_at": TIME,
        "run_after": nullable(TIME),
        "started_at": nullable(TIME),
        "finished_at": nullable(TIME),
        "attempt_count": COUNT,
        "max_attempts": {"type": "integer", "minimum": 1},
        "reason": nullable(TEXT),
        "progress": nullable(OBJECT),
        "last_error": nullable(TEXT),
        "result_ref": nullable(TEXT),
        "lease_owner": nullable(ID),
        "lease_expires_at": nullable(TIME),
        "cancel_requested_at": nullable(TIME),
        "job_id": nullable(ID),
        "parent_id": nullable(ID),
        "concurrency_key": nullable(TEXT),
        "tags": TEXTS,
        "links": {"type": "object", "additionalProperties": TEXT, "required": ["self", "result"]},
    },
)

JOB = record(
    "A group of runs with a common outcome.",
    {
        "job_id": ID,
        "name": TEXT,
        "status": STATUS,
        "description": nullable(TEXT),
        "created_at": TIME,
        "started_at": nullable(TIME),
        "finished_at": nullable(TIME),
        "deadline_at": nullable(TIME),
        "cancel_requested_at": nullable(TIME),
        "reason": nullable(TEXT),
        "total_tasks": COUNT,
        "completed_tasks": COUNT,
        "failed_tasks": COUNT,
        "cancelled_tasks": COUNT,
        "submitted_by": nullable(TEXT),
        "links": {"type": "object", "additionalProperties": TEXT, "required": ["self", "tasks"]},
    },
) | {"additionalProperties": True}

PROBLEM: Part = {
    "type": "object",
    "description": "What went wrong (RFC 9457). `type` is stable, and is the path of its description.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": TEXT,
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": TEXT,
        "request_id": TEXT,
        "run_id": ID,
        "job_id": ID,
        "error": OBJECT,
        "errors": {
            "type": "array",
            "items": record("One mistake.", {"pointer": TEXT, "detail": TEXT}),
        },
    },
}

EVENT = record(
    "Something that happened to a run.",
    {
        "seq": {"type": "integer", "minimum": 1},
        "type": TEXT,
        "from": nullable(TEXT),
        "to": nullable(TEXT),
        "reason": nullable(TEXT),
        "at": TIME,
        "attempt": COUNT,
    },
)

ATTEMPT = record(
    "One execution of a run under one lease.",
    {
        "number": {"type": "integer", "minimum": 1},
        "status": {"type": "string", "enum": [str(status) for status in AttemptStatus]},
        "executor": nullable(TEXT),
        "worker_id": nullable(ID),
        "claimed_at": nullable(TIME),
        "started_at": nullable(TIME),
        "finished_at": nullable(TIME),
        "exit_code": nullable(WHOLE),
        "reason": nullable(TEXT),
        "error": nullable(ref("Error")),
        "progress": nullable(OBJECT),
        "result_ref": nullable(TEXT),
        "heartbeat_at": nullable(TIME),
        **dict.fromkeys(RUNNER_DETAILS, nullable(TEXT)),
    },
)

LOG_LINE = record(
    "A line that a run wrote.",
    {"seq": COUNT, "at": TIME, "attempt": COUNT, "level": TEXT, "message": TEXT},
)

REASON = record("The reason for the state of a run.", {"code": TEXT, "detail": TEXT, "fields": OBJECT})

PROVENANCE = record(
    "The provenance of a result.",
    {
        "run_id": ID,
        "model": TEXT,
        "status": STATUS,
        "parameters": OBJECT,
        "payload_hash": SHA256,
        "payload_hashed_as": TEXT,
        "submitted_by": nullable(TEXT),
        "parent_id": nullable(ID),
        "job_id": nullable(ID),
        "created_at": TIME,
        "started_at": nullable(TIME),
        "finished_at": nullable(TIME),
        "wait_seconds": nullable(NUMBER),
        "run_seconds": nullable(NUMBER),
        "attempts": {"type": "array", "items": OBJECT},
        "result": nullable(record("The result.", {"sha256": SHA256, "size": COUNT, "result_ref": nullable(TEXT)})),
    },
)

QUEUE = record(
    "A queue that has live runs, or was paused.",
    {
        "name": TEXT,
        "ready": COUNT,
        "waiting": COUNT,
        "running": COUNT,
        "oldest_ready_at": nullable(TIME),
        "paused": {"type": "boolean"},
        "paused_at": nullable(TIME),
        "paused_by": nullable(TEXT),
        "pause_reason": nullable(TEXT),
    },
)

WORKER = record(
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
        "stopped_at": nullable(TIME),
    },
)

TASK = record(
    "A registered callable that can be submitted.",
    {
        "name": TEXT,
        "about": TEXT,
        "queue": TEXT,
        "priority": WHOLE,
        "timeout_seconds": nullable(NUMBER),
        "max_attempts": WHOLE,
        "dedupe": {"type": ["string", "number"]},
        "ignore_in_hash": TEXTS,
        "executor": nullable(TEXT),
        "tags": TEXTS,
        "parameters": {"type": "object", "description": "A JSON Schema."},
    },
)

SUMMARY = record(
    "How many runs each model has had, by status.",
    {
        "items": listed(
            record(
                "One model.",
                {
                    "model": TEXT,
                    "created": COUNT,
                    **{str(status): COUNT for status in Status},
                    "retried": COUNT,
                    "lost": COUNT,
                    "mean_seconds": nullable(NUMBER),
                },
            )
        )["properties"]["items"],
        "total": {"type": "object", "additionalProperties": COUNT},
    },
)

HEALTH: dict[str, Any] = record(
    "The health of the server and its dependencies.",
    {
        "status": {"type": "string", "enum": ["ok", "down"]},
        "checks": {"type": "object", "additionalProperties": {"type": "string", "enum": ["ok", "down"]}},
    },
)
HEALTH["properties"]["reasons"] = {
    "type": "object",
    "description": "Why a check is down, where that is known. Left out if every check is ok.",
    "additionalProperties": {"type": "string"},
}
