"""Exit codes: each error has the documented code."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.cli import exits
from holdfast.domain import errors
from holdfast.domain.states import FINAL

CODES: dict[int, set[type[BaseException]]] = {
    1: {
        errors.ConfigurationError,
        errors.ClientClosed,
        errors.SchemaMismatch,
        errors.UpgradeBlocked,
        errors.ResultNotStorable,
        errors.Fatal,
        errors.Postpone,
        errors.RunTimedOut,
    },
    2: {errors.BadInput, errors.NotCanonical, errors.BadParameters, errors.UnknownTask},
    3: {errors.RunFailed},
    4: {errors.RunCancelled},
    5: {errors.WaitTimeout},
    6: {
        errors.RunNotFound,
        errors.NotFound,
        errors.JobNotFound,
        errors.SubscriptionNotFound,
        errors.ResultPruned,
    },
    7: {errors.NotAllowed, errors.PrivilegeMissing, PermissionError, psycopg.errors.InsufficientPrivilege},
    8: {
        errors.KeyReused,
        errors.RunEnded,
        errors.RunNotFinished,
        errors.JobEnded,
        errors.ChildDiffers,
        errors.LeaseLost,
        errors.SubscriptionExists,
        errors.SubscriptionNotReady,
    },
    69: {errors.DatabaseUnreachable, errors.DatabaseReadOnly, errors.ServerUnreachable, psycopg.OperationalError},
}


@pytest.mark.parametrize(
    ("code", "error"),
    [(code, error) for code, kinds in CODES.items() for error in sorted(kinds, key=lambda kind: kind.__name__)],
)
def test_each_error_has_its_code(code: int, error: type[BaseException]) -> None:
    assert exits.code_of(error.__new__(error)) == code


def test_every_error_class_has_an_exit_code() -> None:
    ours = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HoldfastError)}
    assert ours - {errors.HoldfastError} <= set().union(*CODES.values())


def test_every_final_status_has_an_exit_code() -> None:
    assert exits.BY_STATUS.keys() == FINAL
    assert exits.code_of(RuntimeError()) == 1


def test_every_exit_code_is_explained_in_the_help() -> None:
    from holdfast.cli.app import app

    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert exits.MEANINGS.keys() == codes
    assert all(f"{code} {meaning}" in (app.epilog or "") for code, meaning in exits.MEANINGS.items())
