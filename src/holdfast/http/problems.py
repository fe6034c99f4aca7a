"""Every error as a problem document (RFC 9457), from one table.

`type` is stable and is the path of its description: `GET /problems/key-reused`. A document never reveals tracebacks,
SQL or addresses; they are in the server's log under the request id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
import psycopg
from werkzeug.exceptions import HTTPException

from holdfast.domain import errors
from holdfast.domain.errors import HoldfastError
from holdfast.domain.strict_json import NotJson
from holdfast.http.answers import Answer
from holdfast.http.database import DatabaseBusy
from holdfast.results.files import DamagedResult

MEDIA_TYPE = "application/problem+json"


class Kind(NamedTuple):
    """One kind of problem. `detail` replaces the error's message if callers must not see it."""

    status: int
    title: str
    about: str
    detail: str | None = None
    headers: Mapping[str, str] = {}


_SOON = {"Retry-After": "1"}

KINDS: dict[str, Kind] = {
    "not-json": Kind(400, "Not JSON", "The body is not JSON: its syntax or its encoding is not valid."),
    "bad-key": Kind(
        400,
        "Malformed key",
        "An Idempotency-Key must be 1 to 255 visible ASCII characters, quoted or unquoted, and must be sent once.",
    ),
    "bad-digest": Kind(400, "Digest mismatch", "The body does not match its Content-Digest; it was damaged."),
    "bad-request": Kind(400, "Bad request", "The request is not valid HTTP."),
    "unauthenticated": Kind(401, "Token needed", "Send a valid token: `Authorization: Bearer hf_…`."),
    "insufficient-scope": Kind(403, "Not allowed", "The token does not have the scope that this request needs."),
    "unknown-host": Kind(403, "Unknown host", "The Host header does not name a host that this server accepts."),
    "cross-site": Kind(403, "Cross-site request", "Pages on other sites must not change anything on this server."),
    "not-found": Kind(404, "Not found", "There is nothing at this path."),
    "job-not-found": Kind(404, "No such job", "No job has this id; it may have been pruned."),
    "run-not-found": Kind(404, "No such run", "No run has this id; it may have been pruned."),
    "method-not-allowed": Kind(
        405, "Method not allowed", "This path does not support this method; the Allow header lists those it supports."
    ),
    "not-acceptable": Kind(406, "Not acceptable", "The response is available only in other media types."),
    "request-timeout": Kind(408, "Request timeout", "The request did not arrive completely in time."),
    "key-reused": Kind(
        409, "Key reused", "The key already belongs to a different request. Use a new key for a new request."
    ),
    "run-not-finished": Kind(
        409, "Run not finished", "The run has no result yet; try again later, or wait for it with ?wait=.", None, _SOON
    ),
    "run-failed": Kind(409, "Run failed", "The run ended FAILED, so it has no result."),
    "run-cancelled": Kind(409, "Run cancelled", "The run was cancelled, so it has no result."),
    "run-ended": Kind(409, "Run ended", "The run's status does not allow this."),
    "job-ended": Kind(409, "Job ended", "The job has ended or is being stopped; nothing can be added to it."),
    "task-differs": Kind(
        409,
        "Task differs",
        "The job has a task with this key but a different entrypoint, kwargs or dependencies. Use another key.",
        "The job has a different task with this key; `errors` says what differs. Use another key.",
    ),
    "conflict": Kind(409, "Conflict", "The current state does not allow this."),
    "result-pruned": Kind(
        410, "Result pruned", "The run succeeded, but its result was deleted after the retention period."
    ),
    "body-too-large": Kind(413, "Body too large", "The body exceeds HOLDFAST_MAX_BODY_BYTES."),
    "uri-too-long": Kind(414, "URI too long", "The request line is longer than the server accepts."),
    "unsupported-media-type": Kind(415, "Unsupported media type", "Send application/json in UTF-8, not compressed."),
    "bad-input": Kind(422, "Bad input", "A field is unknown, missing or out of range; `errors` says where and why."),
    "refused-value": Kind(
        422,
        "Refused value",
        "The JSON cannot be stored and returned unchanged, for example because of a duplicate key.",
    ),
    "unknown-model": Kind(422, "Unknown model", "No task is registered under this name; GET /tasks lists them."),
    "bad-parameters": Kind(
        422, "Bad parameters", "The parameters do not match the task; GET /tasks/{name} returns their schema."
    ),
    "headers-too-large": Kind(431, "Headers too large", "The headers are larger than the server accepts."),
    "internal-error": Kind(
        500,
        "Internal error",
        "The server failed to handle the request.",
        "The server's log contains the cause, under the request id.",
    ),
    "result-damaged": Kind(
        500, "Result damaged", "The stored result is missing or damaged.", "The result cannot be read."
    ),
    "too-many-connections": Kind(
        503, "Too many connections", "The server process has reached its connection limit.", None, _SOON
    ),
    "database-unreachable": Kind(
        503,
        "Database unreachable",
        "Postgres does not respond; try again. With an Idempotency-Key, nothing is done twice.",
        "Postgres is not responding. Try again; with the same Idempotency-Key, nothing is done twice.",
        _SOON,
    ),
    "database-read-only": Kind(
        503,
        "Database read-only",
        "Postgres accepts no writes: it is a standby or read-only.",
        "The database accepts no writes: it is a standby or read-only. Nothing has been done.",
        _SOON,
    ),
    "schema-mismatch": Kind(
        503,
        "Schema mismatch",
        "The database does not have the schema that this server needs.",
        "The database's schema does not match this server; run: holdfast db upgrade",
        {"Retry-After": "30"},
    ),
    "privilege-missing": Kind(
        503,
        "Privilege missing",
        "The database role of this server lacks a privilege that the request needs.",
        "The database role of this server lacks a privilege; run: holdfast doctor --for api",
        {"Retry-After": "30"},
    ),
    "too-many-streams": Kind(503, "Too many streams", "The server has reached its limit of open streams."),
    "database-busy": Kind(
        503,
        "Database busy",
        "Postgres, or every connection to it, was too busy to respond in time.",
        "The database was too busy to respond in time. Try again.",
        _SOON,
    ),
}

# The most specific class of the error applies.
BY_ERROR: dict[type[BaseException], str] = {
    NotJson: "not-json",
    errors.NotCanonical: "refused-value",
    errors.BadParameters: "bad-parameters",
    errors.UnknownTask: "unknown-model",
    errors.BadInput: "bad-input",
    errors.KeyReused: "key-reused",
    errors.RunNotFound: "run-not-found",
    errors.JobNotFound: "job-not-found",
    errors.NotFound: "not-found",
    errors.RunNotFinished: "run-not-finished",
    errors.RunFailed: "run-failed",
    errors.RunCancelled: "run-cancelled",
    errors.RunEnded: "run-ended",
    errors.JobEnded: "job-ended",
    errors.ChildDiffers: "task-differs",
    errors.ResultPruned: "result-pruned",
    DamagedResult: "result-damaged",
    errors.NotAllowed: "insufficient-scope",
    DatabaseBusy: "database-busy",
    psycopg.errors.LockNotAvailable: "database-busy",
    psycopg.errors.DeadlockDetected: "database-busy",
    psycopg.errors.SerializationFailure: "database-busy",
    psycopg.errors.QueryCanceled: "database-busy",
    psycopg.errors.ReadOnlySqlTransaction: "database-read-only",
    psycopg.errors.UndefinedTable: "schema-mismatch",
    psycopg.errors.UndefinedColumn: "schema-mismatch",
    psycopg.errors.InvalidSchemaName: "schema-mismatch",
    errors.DatabaseUnreachable: "database-unreachable",
    errors.DatabaseReadOnly: "database-read-only",
    errors.SchemaMismatch: "schema-mismatch",
    errors.PrivilegeMissing: "privilege-missing",
    psycopg.errors.InsufficientPrivilege: "privilege-missing",
    errors.UpgradeBlocked: "schema-mismatch",
    Exception: "internal-error",
}

BY_STATUS = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    408: "request-timeout",
    413: "body-too-large",
    414: "uri-too-long",
    415: "unsupported-media-type",
    431: "headers-too-large",
    501: "bad-request",
    503: "too-many-connections",
}


class Refusal(HoldfastError):
    """A request that the HTTP layer refuses; `kind` names the problem."""

    def __init__(self, kind: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        self.headers = headers or {}


def kind_of(error: BaseException) -> str:
    if isinstance(error, Refusal):
        return error.kind
    return next(BY_ERROR[cls] for cls in type(error).__mro__ if cls in BY_ERROR)


def document(kind: str, detail: str, **members: Any) -> dict[str, Any]:
    about = KINDS[kind]
    made = {"type": f"/problems/{kind}", "title": about.title, "status": about.status, "detail": about.detail or detail}
    return made | {name: value for name, value in members.items() if value}


def answer_to(error: Exception, request_id: str) -> Answer:
    """The answer to a request that ended with this error."""
    if isinstance(error, HTTPException):
        return _http_answer(error, request_id)
    kind = kind_of(error)
    headers = {**KINDS[kind].headers, **getattr(error, "headers", {})}
    return _answer(kind, str(error), headers, _members(error) | {"request_id": request_id})


def _members(error: Exception) -> dict[str, Any]:
    members: dict[str, Any] = {}
    if isinstance(error, errors.KeyReused | errors.ChildDiffers):
        # Stored values are shown only to callers that may read them.
        members["errors"] = [{"pointer": pointer, "detail": "differs"} for pointer in error.fields]
        members["run_id"], members["job_id"] = getattr(error, "run_id", None), getattr(error, "job_id", None)
    elif isinstance(error, errors.BadInput):
        members["errors"] = [{"pointer": p.pointer, "detail": p.detail} for p in error.problems]
    elif isinstance(error, errors.RunFailed) and error.error:
        members["error"] = {name: error.error.get(name) for name in ("class", "message")}
    return members


def _http_answer(error: HTTPException, request_id: str) -> Answer:
    """The answer to a request that Flask refuses: an unknown path, or a method that the path does not have."""
    status = error.code or 500
    kind = BY_STATUS.get(status, "bad-request" if status < 500 else "internal-error")
    allowed = getattr(error, "valid_methods", None)
    headers = {"Allow": ", ".join(sorted(set(allowed) - {"OPTIONS"}))} if allowed else {}
    return _answer(kind, KINDS[kind].about, headers, {"request_id": request_id})


def _answer(kind: str, detail: str, headers: Mapping[str, str], members: Mapping[str, Any]) -> Answer:
    body = orjson.dumps(document(kind, detail, **members))
    return Answer(body, KINDS[kind].status, {**headers, "Cache-Control": "no-store"}, MEDIA_TYPE)
