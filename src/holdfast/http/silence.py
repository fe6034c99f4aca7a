"""Connections that give up on a server that says nothing.

A Postgres that is stopped keeps its sockets open, and its kernel acknowledges every packet: no error ever comes, and no
timeout of the server or of TCP helps. So whoever waits for an answer counts the time.
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")

# With the look whether Postgres takes a new connection, a caller hears of it after about ten seconds.
SILENCE_SECONDS = 7.0


class Silence(psycopg.OperationalError):
    """A statement was not answered in time. Whether it was done, nobody knows; its connection is closed."""


class ImpatientConnection(psycopg.Connection[Any]):
    """Waits for each answer for so long only."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().wait(_bounded(gen, monotonic() + SILENCE_SECONDS), *args, **kwargs)
        except Silence:
            self.close()
            raise


def _bounded(waits: Generator[Any, Any, T], ends_at: float) -> Generator[Any, Any, T]:
    """The same waits; psycopg comes back from each several times a second, with 0 while nothing is there to read."""
    try:
        wanted = next(waits)
        while True:
            ready = yield wanted
            if not ready and monotonic() >= ends_at:
                raise Silence(f"Postgres said nothing for {SILENCE_SECONDS:g} s")
            wanted = waits.send(ready)
    except StopIteration as done:
        answered: T = done.value
        return answered
