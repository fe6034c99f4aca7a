"""Every error is in the table, and reveals only what callers may know."""

from __future__ import annotations

import inspect

import psycopg
import pytest

from holdfast.domain import errors
from holdfast.http.problems import BY_ERROR, BY_STATUS, KINDS, answer_to, kind_of
from holdfast.http_client.refusals import BY_TYPE, error_from

# Errors that occur only inside a worker, or that prevent a server from starting.
NOT_OVER_HTTP = {
    errors.HoldfastError,
    errors.ConfigurationError,
    errors.ClientClosed,
    errors.ServerUnreachable,
    errors.RunTimedOut,
    errors.WaitTimeout,
    errors.LeaseLost,
    errors.ChildDiffers,
    errors.Fatal,
    errors.Postpone,
    errors.ResultNotStorable,
}


def test_every_error_has_a_problem_type() -> None:
    known = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, errors.HoldfastError)]
    for error in known:
        if error in NOT_OVER_HTTP or error.__module__ != errors.__name__ or "Subscription" in error.__name__:
            continue
        kinds = [BY_ERROR[cls] for cls in error.__mro__ if cls in BY_ERROR]
        assert kinds[0] != "internal-error", error


def test_every_problem_type_has_a_status_a_title_and_a_description() -> None:
    assert set(BY_ERROR.values()) | set(BY_STATUS.values()) <= set(KINDS)
    for name, kind in KINDS.items():
        assert 400 <= kind.status < 600
        assert kind.title
        assert kind.about.endswith(".")
        assert name == name.lower()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_client_raises_the_error_of_a_problem(kind: str) -> None:
    body = f'{{"type": "/problems/{kind}", "status": {KINDS[kind].status}, "detail": "said"}}'.encode()
    error = error_from(KINDS[kind].status, body)
    assert isinstance(error, errors.HoldfastError)
    assert error.problem is not None
    assert kind in BY_TYPE or type(error) in (errors.HoldfastError, errors.ServerUnreachable)


@pytest.mark.parametrize("type_", ["about:blank", "https://example.com/not-found"])
def test_client_accepts_a_problem_of_a_proxy_with_errors_in_another_form(type_: str) -> None:
    body = f'{{"type": "{type_}", "detail": "no route", "errors": {{"upstream": ["refused"]}}}}'.encode()
    error = error_from(404, body)
    assert str(error) == "no route"
    assert error.problem is not None
    assert error.problem["errors"] == {"upstream": ["refused"]}


def test_pruned_result_is_a_410() -> None:
    answer = answer_to(errors.ResultPruned("the result of run x is past its retention"), "id")
    assert answer.status == 410
    assert b"result-pruned" in bytes(answer.body)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.UndefinedTable("relation holdfast.runs does not exist"), "schema-mismatch"),
        (psycopg.errors.LockNotAvailable("x"), "database-busy"),
        (psycopg.errors.QueryCanceled("x"), "database-busy"),
        (psycopg.errors.ReadOnlySqlTransaction("x"), "database-read-only"),
        (psycopg.errors.CheckViolation("secret row"), "internal-error"),
        (errors.SchemaMismatch("at 0001"), "schema-mismatch"),
        (ValueError("secret"), "internal-error"),
    ],
)
def test_messages_of_the_database_are_not_revealed(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind
    body = bytes(answer_to(error, "id").body)  # type: ignore[arg-type]
    assert str(error).encode() not in body or kind == "schema-mismatch"
    assert b"secret" not in body
    assert b"relation" not in body
