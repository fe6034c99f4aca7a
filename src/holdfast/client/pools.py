"""Connections of a pool that the server has not closed while they were idle.

After a restart every connection of a pool is dead, and each would fail the call that takes it. The server said goodbye
on all of them, so a look at the socket finds out before anything is sent, without a round trip.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from holdfast.drivers.sessions import AsyncOwnConnection, OwnConnection

# What a connection raises when it, or the server, is at fault and not the caller.
REFUSED = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
LOOKS = 5


@contextmanager
def fresh(pool: ConnectionPool[OwnConnection]) -> Iterator[OwnConnection]:
    """Take a connection; if it has been closed by the server, all that were idle go, and a new one is made."""
    for left in reversed(range(LOOKS)):
        with pool.connection() as connection:
            if not (left and connection.is_stale()):
                yield connection
                return
            connection.close()
        pool.drain()


@asynccontextmanager
async def fresh_async(pool: AsyncConnectionPool[AsyncOwnConnection]) -> AsyncIterator[AsyncOwnConnection]:
    """The same, awaiting."""
    for left in reversed(range(LOOKS)):
        async with pool.connection() as connection:
            if not (left and await connection.is_stale()):
                yield connection
                return
            await connection.close()
        await pool.drain()
