"""A worker's connections: each is reserved for one use, and comes back by itself after it broke."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, LiteralString, TypeVar

import psycopg

from holdfast.drivers import psycopg_async
from holdfast.sql.statement import Op

T = TypeVar("T")

# A peer that is gone without a word is noticed within about ten seconds, whether we send or wait.
KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


# What a connection raises when it, and not the statement, is at fault.
UNREACHABLE = (psycopg.OperationalError, psycopg.InterfaceError, TimeoutError, OSError)


def said(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


class Database:
    """One connection, used by one at a time. An error of the connection closes it; the next use opens another."""

    def __init__(self, url: str, use: str, *, patience: float = 30.0) -> None:
        self._url = url
        self._use = use
        self._patience = patience
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()
        self.opened = 0

    async def transact(self, make_op: Callable[[], Op[T]], begin: LiteralString | None = None) -> T:
        """Drive an operation. Raises psycopg.Error, or TimeoutError if the database does not answer in time."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._patience):
                    connection = self._connection or await self._connect()
                    return await psycopg_async.transact(connection, make_op, begin)
            except UNREACHABLE:
                await self._drop()
                raise
            except BaseException:
                if self._connection is not None and (
                    self._connection.closed or self._connection.info.transaction_status != 0
                ):
                    await self._drop()
                raise

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        self._connection = await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, application_name=f"holdfast {self._use}", **KEEPALIVE
        )
        self.opened += 1
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close()

    async def close(self) -> None:
        async with self._lock:
            await self._drop()
