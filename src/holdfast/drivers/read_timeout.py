"""Waits with a read timeout, for servers that stop responding.

A Postgres process that is suspended keeps its sockets open, and its kernel acknowledges every packet: there is no
error, and no timeout of the server or of TCP applies. So the client measures how long it waits for a response.
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


class ReadTimeout(psycopg.OperationalError):
    """The server did not respond in time. Whether the statement was executed is unknown; the connection is closed."""


def bounded(waits: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """Add a time limit to psycopg's waits. Each returns several times a second, with 0 if nothing can be read."""
    ends_at = monotonic() + seconds
    try:
        wanted = next(waits)
        while True:
            ready = yield wanted
            if not ready and monotonic() >= ends_at:
                raise ReadTimeout(f"Postgres did not respond within {seconds:g} s")
            wanted = waits.send(ready)
    except StopIteration as done:
        answered: T = done.value
        return answered
