"""Where a call of the jobs API comes from: the run it is made in, if any, and a client for its database."""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import replace

from holdfast.client.blocking import Client
from holdfast.domain.context import RunContext, current_run
from holdfast.domain.errors import HoldfastError
from holdfast.runtime.settings import Settings, load

CONNECTIONS = 4

_lock = threading.Lock()
_clients: dict[tuple[int, Settings], Client] = {}


def _replace_lock() -> None:
    """In a forked process, forget that another thread of the parent held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_replace_lock)


def running() -> RunContext | None:
    """The run that the caller's code belongs to, if it does to one."""
    try:
        return current_run()
    except HoldfastError:
        return None


def client() -> Client:
    """A client for the database of the current run, else for the one that the settings name."""
    run = running()
    return client_for(load(), run.link.database_url if run is not None else None)


def client_for(settings: Settings, database_url: str | None = None) -> Client:
    """The client of this process for a database; opened once, and closed when the process ends."""
    if database_url is not None:
        settings = replace(settings, database_url=database_url)
    key = (os.getpid(), settings)
    with _lock:
        found = _clients.get(key)
        if found is None:
            found = _clients[key] = Client(settings, max_connections=CONNECTIONS)
        return found


def close() -> None:
    """Close the clients of this process; the next call opens another."""
    with _lock:
        mine = [key for key in _clients if key[0] == os.getpid()]
        for key in mine:
            _clients.pop(key).close()


atexit.register(close)
