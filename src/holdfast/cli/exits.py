"""Exit codes: one table from what went wrong to the number that scripts see."""

from __future__ import annotations

import sys
from typing import Final

from holdfast.domain import errors
from holdfast.domain.states import Status

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
RUN_FAILED: Final = 3
RUN_CANCELLED: Final = 4
WAIT_TIMED_OUT: Final = 5
NOT_FOUND: Final = 6
NOT_ALLOWED: Final = 7
CONFLICT: Final = 8
UNREACHABLE: Final = 69
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
TERMINATED: Final = 143

MEANINGS = {
    OK: "done",
    ERROR: "error",
    USAGE: "invalid usage or input",
    RUN_FAILED: "the run failed",
    RUN_CANCELLED: "the run was cancelled",
    WAIT_TIMED_OUT: "the wait timed out",
    NOT_FOUND: "not found",
    NOT_ALLOWED: "not allowed",
    CONFLICT: "conflict",
    UNREACHABLE: "the database or the API does not respond",
    INTERRUPTED: "interrupted",
    PIPE_CLOSED: "the output pipe was closed",
    TERMINATED: "terminated",
}

# The most specific class of the error decides.
BY_ERROR: dict[type[BaseException], int] = {
    errors.HoldfastError: ERROR,
    errors.BadInput: USAGE,
    errors.RunFailed: RUN_FAILED,
    errors.RunCancelled: RUN_CANCELLED,
    errors.WaitTimeout: WAIT_TIMED_OUT,
    errors.RunNotFound: NOT_FOUND,
    errors.ResultPruned: NOT_FOUND,
    errors.NotFound: NOT_FOUND,
    errors.JobNotFound: NOT_FOUND,
    errors.SubscriptionNotFound: NOT_FOUND,
    errors.KeyReused: CONFLICT,
    errors.SubscriptionExists: CONFLICT,
    errors.SubscriptionNotReady: CONFLICT,
    errors.RunEnded: CONFLICT,
    errors.RunNotFinished: CONFLICT,
    errors.JobEnded: CONFLICT,
    errors.ChildDiffers: CONFLICT,
    errors.LeaseLost: CONFLICT,
    errors.NotAllowed: NOT_ALLOWED,
    errors.PrivilegeMissing: NOT_ALLOWED,
    errors.DatabaseUnreachable: UNREACHABLE,
    errors.ServerUnreachable: UNREACHABLE,
    PermissionError: NOT_ALLOWED,
    KeyboardInterrupt: INTERRUPTED,
    BrokenPipeError: PIPE_CLOSED,
}

BY_STATUS: dict[Status, int] = {Status.SUCCEEDED: OK, Status.FAILED: RUN_FAILED, Status.CANCELLED: RUN_CANCELLED}


def code_of(error: BaseException) -> int:
    for cls in type(error).__mro__:
        if cls in BY_ERROR:
            return BY_ERROR[cls]
    return _database_code(error)


def _database_code(error: BaseException) -> int:
    """The exit codes of psycopg's own errors; psycopg is not imported for this."""
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None:
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return NOT_ALLOWED
        if isinstance(error, psycopg.OperationalError):
            return UNREACHABLE
    return ERROR
