"""Pools of Holdfast's own connections, for clients and for the API. A worker has none.

After a restart of the server every connection of a pool is dead, and each would fail the call that uses it. The server
sends a message before it closes a connection, so polling the socket detects this without a round trip.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from holdfast.drivers.connections import AsyncOwnConnection, OwnConnection

STALE_CHECKS = 5


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
    for left in reversed(range(STALE_CHECKS)):
        # Not as a context manager: it would commit, which costs time, and our drivers end what they begin.
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
    """The asynchronous version of `fresh`."""
    for left in reversed(range(STALE_CHECKS)):
        async with pool.connection() as connection:
            if not (left and await connection.is_stale()):
                yield connection
                return
            await connection.close()
        await pool.drain()
