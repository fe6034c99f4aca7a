"""The schemas of requests and responses."""

from __future__ import annotations

from typing import Any

from holdfast.documents.others import (
    SUMMARY,
    job_document,
    provenance_document,
    queue_document,
    task_document,
    worker_document,
)
from holdfast.documents.runs import attempt_document, event_document, log_document, run_document
from holdfast.documents.shapes import ID, OBJECT, TEXT, Part, nullable, record
from holdfast.runtime.settings import Settings
from holdfast.verbs.openapi import START_TIME, fields_of, short_text

DEPENDS_ON: Part = {
    "type": "array",
    "description": "Dependencies: ids of runs, or keys of tasks in the same job.",
    "items": {
        "anyOf": [
            short_text(255),
            fields_of({"task": short_text(255), "on": {"enum": ["success", "failure", "always"]}}, "task"),
        ]
    },
}


def schemas(settings: Settings, models: list[str]) -> dict[str, Part]:
    """Every named schema, with the limits from the settings and the models that this server knows."""
    return {
        "RunRequest": run_request(settings, models),
        "TaskRequest": task_request(settings, models),
        "Run": run_document.schema,
        "Job": job_document.schema | {"additionalProperties": True},
        "Problem": PROBLEM,
        "Event": event_document.schema,
        "Attempt": attempt_document.schema,
        "LogLine": log_document.schema,
        "Reason": REASON,
        "Provenance": provenance_document.schema,
        "Queue": queue_document.schema,
        "Worker": worker_document.schema,
        "Task": task_document.schema,
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
    return fields_of(
        {name: _or_null(schema) if name != "model" else schema for name, schema in fields.items()}, "model"
    )


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
    return fields_of(fields, "entrypoint")


def _or_null(schema: Part) -> Part:
    """Allow null, which means that the option was not given."""
    return schema | {"anyOf": [*schema["anyOf"], {"type": "null"}]} if "anyOf" in schema else nullable(schema)


ERROR = record(
    "Why an attempt failed.",
    {"class": TEXT, "message": TEXT, "traceback": nullable(TEXT)},
) | {"additionalProperties": True, "required": ["class", "message"]}

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

REASON = record("The reason for the state of a run.", {"code": TEXT, "detail": TEXT, "fields": OBJECT})

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
