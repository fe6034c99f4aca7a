"""Parts of the OpenAPI document that declarations use to describe their routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.documents.shapes import ID, TIME, WHOLE, Part, nullable
from holdfast.domain.times import FURTHEST_SECONDS


def ref(name: str) -> Part:
    return {"$ref": f"#/components/schemas/{name}"}


def operation(name: str, summary: str, about: str = "", **parts: Any) -> Part:
    """An operation; `answers` are its responses by status, and any other response is a problem."""
    answers = {str(status): answer for status, answer in parts.pop("answers").items()}
    made: Part = {"operationId": name, "summary": summary}
    if about:
        made["description"] = about
    return made | parts | {"responses": answers | {"default": {"$ref": "#/components/responses/Problem"}}}


def says(about: str, schema: Part | None = None, *, headers: Part | None = None, links: Part | None = None) -> Part:
    """A response with JSON of this schema, or without a body."""
    made: Part = {"description": about}
    if headers:
        made["headers"] = headers
    if schema is not None:
        made["content"] = {"application/json": {"schema": schema}}
    if links:
        made["links"] = links
    return made


def problem(*kinds: str, headers: Part | None = None) -> Part:
    """A response that is one of these problems."""
    made: Part = {
        "description": " or ".join(f"`{kind}`" for kind in kinds),
        "content": {"application/problem+json": {"schema": ref("Problem")}},
    }
    if headers:
        made["headers"] = headers
    return made


def header(about: str, schema: Part | None = None) -> Part:
    return {"description": about, "schema": schema or {"type": "string"}}


def in_query(name: str, about: str, schema: Part) -> Part:
    return {"name": name, "in": "query", "description": about, "schema": schema}


def in_header(name: str, about: str, schema: Part | None = None) -> Part:
    return {"name": name, "in": "header", "description": about, "schema": schema or {"type": "string"}}


def in_path(name: str, about: str, schema: Part | None = None) -> Part:
    return {"name": name, "in": "path", "required": True, "description": about, "schema": schema or {"type": "string"}}


def json_request(schema: Part, *, required: bool = True, example: Any = None) -> Part:
    media: Part = {"schema": schema}
    if example is not None:
        media["example"] = example
    return {"required": required, "content": {"application/json": media}}


def link(target: str, about: str, **parameters: str) -> Part:
    """A link from a response to another operation, and the values of the response that it uses."""
    return {"operationId": target, "description": about, "parameters": parameters}


def listed(schema: Part, **members: Part) -> Part:
    """An object with `items` of this schema."""
    properties = {"items": {"type": "array", "items": schema}, **members}
    return {"type": "object", "required": list(properties), "properties": properties}


def fields_of(properties: Mapping[str, Part], *required: str) -> Part:
    """An object that may have these fields and no others."""
    made: Part = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**made, "required": list(required)} if required else made


def short_text(most: int) -> Part:
    """A text that can be stored, with at most this many characters."""
    return {"type": "string", "minLength": 1, "maxLength": most, "pattern": "^[^\\u0000]+$"}


def page_of(schema: Part, links: Part | None = None) -> dict[int, Part]:
    """The responses of a list that is read in pages."""
    page = says("A page.", listed(schema, next_cursor=nullable(ID)), headers=NEXT_PAGE, links=links)
    return {200: page, 422: problem("bad-input")}


def version_of(about: str, schema: Part) -> dict[int, Part]:
    """The responses with a document that clients can wait for."""
    found = says(about, schema, headers={**ETAG, **RETRY_AFTER})
    return {200: found, **UNCHANGED, 422: problem("bad-input")}


def located(what: str) -> Part:
    return {"Location": header(f"The path of the {what}.")}


def key_for(request: str, made: str) -> Part:
    """The header of a request that creates something once for each key."""
    return in_header(
        "Idempotency-Key",
        f"1 to 255 visible ASCII characters, quoted or unquoted. The same key and {request} return the same {made}.",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    )


START_TIME: Part = {
    "description": "A time (RFC 3339), or a number of seconds from now by the clock of the database.",
    "anyOf": [TIME, {"type": "number", "minimum": -FURTHEST_SECONDS, "maximum": FURTHEST_SECONDS}],
}
# For each path parameter: its description, and the problem if what it names does not exist.
PATH_PARAMETERS = {
    "run_id": in_path("run_id", "The id of a run.", ID),
    "job_id": in_path("job_id", "The id of a job.", ID),
    "worker_id": in_path("worker_id", "The id of a worker.", ID),
    "name": in_path("name", "The name of a queue.", {"type": "string", "minLength": 1, "maxLength": 255}),
}
MISSING = {"run_id": "run-not-found", "job_id": "job-not-found", "worker_id": "not-found"}
RETRY_AFTER = {"Retry-After": header("Seconds after which to retry.", WHOLE)}
# What lists have in common.
CURSOR = in_query("cursor", "Continue after this `next_cursor`.", ID)
LIMIT = in_query("limit", "Maximum number of items.", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50})
NEXT_PAGE = {"Link": header("The next page, if there is one (RFC 8288).")}
# What documents with an ETag have in common, which clients can wait for.
VERSION = in_header("If-None-Match", "The version that the client has.")
WAITING = [
    in_query("wait", "Seconds to wait, at most 60.", {"type": "number", "minimum": 0, "maximum": 60}),
    VERSION,
    in_header("Prefer", "`wait=20` is the same as `?wait=20`."),
]
STREAM: Part = {"schema": {"type": "string", "description": "Server-sent events; `id` is `seq`."}}
RUN = ref("Run")
ETAG = {"ETag": header("The version of this document.")}
UNCHANGED = {304: says("The document has not changed.", headers=ETAG)}
WITH_REASON = json_request(fields_of({"reason": nullable(short_text(255))}), required=False)
NO_BODY = json_request(fields_of({}), required=False)
# What requests with a body have in common.
BODY_PROBLEMS = {
    400: problem("not-json", "bad-key", "bad-digest", "bad-request"),
    413: problem("body-too-large"),
    415: problem("unsupported-media-type"),
}
REPLAYED = {"Idempotent-Replayed": header("Always `true`.", {"type": "string", "enum": ["true"]})}
RUN_LINKS = {
    name: link(target, about, run_id="$response.body#/run_id")
    for name, target, about in (
        ("run", "getRun", "The run itself."),
        ("result", "getResult", "Its result, if it has succeeded."),
        ("cancel", "cancelRun", "Ask it to stop."),
        ("retry", "retryRun", "Reopen it, if it has failed or was cancelled."),
        ("events", "getEvents", "What happened to it."),
        ("attempts", "getAttempts", "Its attempts."),
        ("logs", "getLogs", "Its log."),
        ("why", "explainRun", "Why it is in its current state."),
        ("provenance", "getProvenance", "The provenance of its result."),
    )
}
