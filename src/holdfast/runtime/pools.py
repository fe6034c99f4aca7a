"""Take connections from a pool, skipping those that the server closed while they were idle.

After a restart of the server every connection of a pool is dead, and each would fail the call that uses it. The server
sends a message before it closes a connection, so polling the socket detects this without a round trip.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from holdfast.drivers.sessions import AsyncOwnConnection, OwnConnection

# Errors of the connection or the server, not of the caller.
REFUSED = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
LOOKS = 5


class OwnPool(ConnectionPool[OwnConnection]):
    """A pool that only the process that opened it can close. In a fork of that process, closing does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._opened_by = os.getpid()
        super().__init__(*args, **kwargs)

    def close(self, timeout: float = 5.0) -> None:
        if self._opened_by == os.getpid():
            super().close(timeout)

    def __del__(self) -> None:
        if self._opened_by == os.getpid():
            super().__del__()


@contextmanager
def fresh(pool: ConnectionPool[OwnConnection]) -> Iterator[OwnConnection]:
    """Take a connection. If the server has closed it, discard all idle connections and open a new one."""
    for left in reversed(range(LOOKS)):
        # Its own context would commit, which takes a turn through psycopg: our drivers end what they begin.
        connection = pool.getconn()
        try:
            if not (left and connection.is_stale()):
                yield connection
                return
            connection.close()
        finally:
            pool.putconn(connection)
        pool.drain()


@asynccontextmanager
async def fresh_async(pool: AsyncConnectionPool[AsyncOwnConnection]) -> AsyncIterator[AsyncOwnConnection]:
    """Do the same asynchronously."""
    for left in reversed(range(LOOKS)):
        async with pool.connection() as connection:
            if not (left and await connection.is_stale()):
                yield connection
                return
            await connection.close()
        await pool.drain()
