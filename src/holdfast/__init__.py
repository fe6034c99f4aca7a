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

# Where each public name lives. They are imported when first asked for, so that `import holdfast` costs nothing.
_HOMES = {
    "holdfast.client": ("AsyncClient", "AsyncRun", "Client", "Run", "Submission", "SubmitOptions"),
    "holdfast.domain.canonical": ("canonicalize",),
    "holdfast.domain.context": ("current_run",),
    "holdfast.domain.errors": (
        "BadParameters",
        "ChildDiffers",
        "Fatal",
        "HoldfastError",
        "JobEnded",
        "KeyReused",
        "LeaseLost",
        "NotCanonical",
        "Postpone",
        "RunCancelled",
        "RunEnded",
        "RunFailed",
        "RunNotFinished",
        "RunNotFound",
        "UnknownTask",
        "WaitTimeout",
    ),
    "holdfast.domain.policies": ("Retry",),
    "holdfast.domain.states": ("Status",),
    "holdfast.domain.tasks": ("Task", "task"),
    "holdfast.http_client": ("AsyncHttpClient", "HttpClient"),
    "holdfast.runtime.settings": ("Settings",),
}

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
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
