"""The errors for problem documents: the same ones that the other clients raise, with the document attached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from holdfast.domain import errors
from holdfast.domain.errors import BadInput, HoldfastError, KeyReused, Problem, RunFailed

Made = Callable[[Mapping[str, Any]], HoldfastError]


def _plain(cls: type[HoldfastError]) -> Made:
    return lambda problem: cls(problem["detail"])


def _input(cls: type[BadInput]) -> Made:
    def make(problem: Mapping[str, Any]) -> HoldfastError:
        error = cls.__new__(cls)
        BadInput.__init__(error, problem["detail"], _problems(problem))
        return error

    return make


def _problems(problem: Mapping[str, Any]) -> list[Problem]:
    return [Problem(one["pointer"], one["detail"]) for one in problem.get("errors", ())]


def _key_reused(problem: Mapping[str, Any]) -> HoldfastError:
    fields = [one["pointer"] for one in problem.get("errors", ())]
    error = KeyReused("", problem.get("run_id"), fields, job_id=problem.get("job_id"))
    error.args = (problem["detail"],)
    return error


def _failed(problem: Mapping[str, Any]) -> HoldfastError:
    return RunFailed(problem["detail"], problem.get("error"))


BY_TYPE: dict[str, Made] = {
    "bad-input": _input(BadInput),
    "bad-key": _input(BadInput),
    "refused-value": _input(errors.NotCanonical),
    "not-json": _input(errors.NotCanonical),
    "bad-parameters": _input(errors.BadParameters),
    "unknown-model": _input(errors.UnknownTask),
    "body-too-large": _input(BadInput),
    "key-reused": _key_reused,
    "unauthenticated": _plain(errors.NotAllowed),
    "insufficient-scope": _plain(errors.NotAllowed),
    "unknown-host": _plain(errors.NotAllowed),
    "cross-site": _plain(errors.NotAllowed),
    "not-found": _plain(errors.NotFound),
    "run-not-found": _plain(errors.RunNotFound),
    "job-not-found": _plain(errors.JobNotFound),
    "run-not-finished": _plain(errors.RunNotFinished),
    "run-failed": _failed,
    "run-cancelled": _plain(errors.RunCancelled),
    "run-ended": _plain(errors.RunEnded),
    "job-ended": _plain(errors.JobEnded),
    "task-differs": _plain(errors.ChildDiffers),
    "result-pruned": _plain(errors.ResultPruned),
    "database-unreachable": _plain(errors.ServerUnreachable),
    "database-busy": _plain(errors.ServerUnreachable),
    "database-read-only": _plain(errors.ServerUnreachable),
    "schema-mismatch": _plain(errors.SchemaMismatch),
    "privilege-missing": _plain(errors.PrivilegeMissing),
    "too-many-streams": _plain(errors.ServerUnreachable),
}


def error_from(status: int, body: bytes) -> HoldfastError:
    """The error for a response other than 2xx."""
    problem = _document(status, body)
    name = str(problem["type"]).rpartition("/")[2]
    make = BY_TYPE.get(name) or _plain(errors.ServerUnreachable if status >= 502 else HoldfastError)
    error = make(problem)
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
