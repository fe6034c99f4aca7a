"""The errors for problem documents: the same ones that the other clients raise, with the document attached."""

from __future__ import annotations

from typing import Any

import orjson

from holdfast.domain import errors
from holdfast.domain.errors import BadInput, HoldfastError, KeyReused, Problem, RunFailed

BY_TYPE: dict[str, type[HoldfastError]] = {
    "bad-input": BadInput,
    "bad-key": BadInput,
    "refused-value": errors.NotCanonical,
    "not-json": errors.NotCanonical,
    "bad-parameters": errors.BadParameters,
    "unknown-model": errors.UnknownTask,
    "body-too-large": BadInput,
    "key-reused": KeyReused,
    "unauthenticated": errors.NotAllowed,
    "insufficient-scope": errors.NotAllowed,
    "unknown-host": errors.NotAllowed,
    "cross-site": errors.NotAllowed,
    "not-found": errors.NotFound,
    "run-not-found": errors.RunNotFound,
    "job-not-found": errors.JobNotFound,
    "run-not-finished": errors.RunNotFinished,
    "run-failed": RunFailed,
    "run-cancelled": errors.RunCancelled,
    "run-ended": errors.RunEnded,
    "job-ended": errors.JobEnded,
    "task-differs": errors.ChildDiffers,
    "result-pruned": errors.ResultPruned,
    "database-unreachable": errors.ServerUnreachable,
    "database-busy": errors.ServerUnreachable,
    "database-read-only": errors.ServerUnreachable,
    "schema-mismatch": errors.SchemaMismatch,
    "privilege-missing": errors.PrivilegeMissing,
    "too-many-streams": errors.ServerUnreachable,
}


def error_from(status: int, body: bytes) -> HoldfastError:
    """The error for a response other than 2xx."""
    problem = _document(status, body)
    name, detail = str(problem["type"]).rpartition("/")[2], problem["detail"]
    kind = BY_TYPE.get(name) or (errors.ServerUnreachable if status >= 502 else HoldfastError)
    # A proxy in front of the API may use another form for `errors`.
    listed = problem.get("errors", ()) if issubclass(kind, BadInput | KeyReused) else ()
    found = [Problem(one["pointer"], one["detail"]) for one in listed]
    error: HoldfastError
    if issubclass(kind, BadInput):
        error = kind.__new__(kind)
        BadInput.__init__(error, detail, found)
    elif kind is KeyReused:
        error = KeyReused("", problem.get("run_id"), [one.pointer for one in found], job_id=problem.get("job_id"))
        error.args = (detail,)
    elif kind is RunFailed:
        error = RunFailed(detail, problem.get("error"))
    else:
        error = kind(detail)
    error.problem = problem
    return error


def _document(status: int, body: bytes) -> dict[str, Any]:
    """The problem document; a proxy in front of the API may have answered without one."""
    try:
        document = orjson.loads(body)
        if isinstance(document, dict) and isinstance(document.get("detail"), str):
            return {"type": "about:blank", **document}
    except orjson.JSONDecodeError:
        pass
    return {
        "type": "about:blank",
        "title": "",
        "status": status,
        "detail": f"the server responded with status {status}",
    }
