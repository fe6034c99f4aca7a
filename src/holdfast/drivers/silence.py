"""Waits that give up on a server that says nothing.

A Postgres that is stopped keeps its sockets open, and its kernel acknowledges every packet: no error ever comes, and no
timeout of the server or of TCP helps. So the side that waits for an answer counts the time.
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


class Silence(psycopg.OperationalError):
    """A statement was not answered in time. It is not known whether it was done; its connection is closed."""


def bounded(waits: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """The same waits; psycopg comes back from each several times a second, with 0 while nothing is there to read."""
    ends_at = monotonic() + seconds
    try:
        wanted = next(waits)
        while True:
            ready = yield wanted
            if not ready and monotonic() >= ends_at:
                raise Silence(f"Postgres did not respond within {seconds:g} s")
            wanted = waits.send(ready)
    except StopIteration as done:
        answered: T = done.value
        return answered
