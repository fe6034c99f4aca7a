"""Clients shared by all code of a process: one per database, opened once and closed when the process ends."""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import replace

from holdfast.client.blocking import Client
from holdfast.runtime.settings import Settings

CONNECTIONS = 4

_lock = threading.Lock()
_clients: dict[tuple[int, Settings], Client] = {}


def _replace_lock() -> None:
    """In a forked process, forget that another thread of the parent held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_replace_lock)


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
