"""Clients on the database: submit runs, wait for them, steer them; blocking and asynchronous.

The names are imported when they are first used, so that `verbs` can import `client.requests` on its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.asynchronous import AsyncClient
    from holdfast.client.blocking import Client
    from holdfast.client.requests import Submission, SubmitOptions
    from holdfast.verbs.handles import AsyncRun, Run

_HOMES = {
    "AsyncClient": "holdfast.client.asynchronous",
    "AsyncRun": "holdfast.verbs.handles",
    "Client": "holdfast.client.blocking",
    "Run": "holdfast.verbs.handles",
    "Submission": "holdfast.client.requests",
    "SubmitOptions": "holdfast.client.requests",
}

__all__ = ["AsyncClient", "AsyncRun", "Client", "Run", "Submission", "SubmitOptions"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast.client' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
