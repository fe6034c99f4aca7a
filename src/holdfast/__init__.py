"""Durable runs on Postgres: a lease decides which worker may execute a run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client import AsyncClient, AsyncRun, Client, Run, Submission, SubmitOptions
    from holdfast.domain.canonical import canonicalize
    from holdfast.domain.context import current_run
    from holdfast.domain.errors import (
        BadParameters,
        ChildDiffers,
        Fatal,
        HoldfastError,
        JobEnded,
        KeyReused,
        LeaseLost,
        NotCanonical,
        Postpone,
        RunCancelled,
        RunEnded,
        RunFailed,
        RunNotFinished,
        RunNotFound,
        UnknownTask,
        WaitTimeout,
    )
    from holdfast.domain.policies import Retry
    from holdfast.domain.states import Status
    from holdfast.domain.tasks import Task, task
    from holdfast.http_client import AsyncHttpClient, HttpClient
    from holdfast.runtime.settings import Settings

# The modules that define the public names. They are imported when a name is first used, so that `import holdfast` costs
# nothing; those that take long to import come last.
_MODULES = (
    "domain.errors",
    "domain.states",
    "domain.policies",
    "domain.canonical",
    "domain.tasks",
    "domain.context",
    "runtime.settings",
    "client",
    "http_client",
)

__all__ = [
    "AsyncClient",
    "AsyncHttpClient",
    "AsyncRun",
    "BadParameters",
    "ChildDiffers",
    "Client",
    "Fatal",
    "HoldfastError",
    "HttpClient",
    "JobEnded",
    "KeyReused",
    "LeaseLost",
    "NotCanonical",
    "Postpone",
    "Retry",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunFailed",
    "RunNotFinished",
    "RunNotFound",
    "Settings",
    "Status",
    "Submission",
    "SubmitOptions",
    "Task",
    "UnknownTask",
    "WaitTimeout",
    "canonicalize",
    "current_run",
    "task",
]


def __getattr__(name: str) -> Any:
    for home in _MODULES if name in __all__ else ():
        module = import_module(f"holdfast.{home}")
        if hasattr(module, name):
            value = globals()[name] = getattr(module, name)
            return value
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
