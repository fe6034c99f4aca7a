"""A worker's connections: each is reserved for one use, and comes back by itself after it broke."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.drivers import psycopg_async
from holdfast.drivers.faults import Fault, fault_of
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


class Unavailable(Exception):
    """The database does not answer, or cannot do its work now. Whether the operation was done is not known."""


class Busy(Exception):
    """Another transaction holds a lock that the operation needs. Nothing of it was done."""


def said(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


class Database:
    """One connection, used by one at a time. An error of the connection closes it; the next use opens another.

    With `moving`, it is the one on which runs move in batches: its plans read by key only.
    """

    def __init__(self, url: str, use: str, *, patience: float = 15.0, moving: bool = False) -> None:
        self._url = url
        self._use = use
        self._patience = patience
        self._moving = moving
        self._plans_by_key = False
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._work: asyncio.Future[Any] | None = None
        self._since = 0.0
        self._lock = asyncio.Lock()

    @property
    def connected(self) -> bool:
        return self._connection is not None

    async def connect(self) -> None:
        """Connect, unless that is done. Raises Unavailable."""
        async with self._lock:
            if self._connection is None:
                try:
                    await self._connect()
                except (psycopg.Error, OSError) as error:
                    await self._drop()
                    raise Unavailable(said(error)) from error

    async def transact(self, make_op: Callable[[], Op[T]], *, several: bool = False, moves: bool = False) -> T:
        """Drive an operation. Raises Unavailable if the database does not answer in time, and Busy if it is locked out.

        With `several`, all its statements share a transaction; one that `moves` runs has its plans made by key.
        """
        async with self._lock:
            self._since = monotonic()
            work = self._work = asyncio.ensure_future(self._drive(make_op, several, moves))
            timer = asyncio.get_running_loop().call_later(self._patience, self.cut)
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                if work.cancelled():
                    raise Unavailable("the database could not be reached in time") from None
                # We were cancelled, and what became of the operation is not known.
                self.cut()
                await asyncio.wait({work}, timeout=1)
                if work.done() and not work.cancelled():
                    work.exception()  # has been seen
                await self._drop()
                raise
            finally:
                timer.cancel()
                self._work = None

    async def _drive(self, make_op: Callable[[], Op[T]], several: bool, moves: bool) -> T:
        try:
            connection = self._connection or await self._connect()
            begin: LiteralString | None = "begin" if several else None
            if moves and not self._plans_by_key:
                begin = psycopg_async.INDEXED
            return await psycopg_async.transact(connection, make_op, begin, again_if_locked=False)
        except (psycopg.Error, OSError) as error:
            fault = fault_of(error)
            if fault is Fault.UNAVAILABLE or not self._is_idle():
                await self._drop()
            if fault is Fault.UNAVAILABLE:
                raise Unavailable(said(error)) from error
            if fault is Fault.BUSY:
                raise Busy(said(error)) from error
            raise
        except BaseException:
            if not self._is_idle():
                await self._drop()
            raise

    def _is_idle(self) -> bool:
        return self._connection is None or self._connection.info.transaction_status == TransactionStatus.IDLE

    def cut(self, after: float = 0.0) -> None:
        """Give up on an answer that has not come for so many seconds.

        The socket is shut rather than the statement cancelled, which would itself take an answer.
        """
        if self._work is None or monotonic() - self._since < after:
            return
        if self._connection is None:
            self._work.cancel()
            return
        with (
            contextlib.suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(self._connection.fileno())) as one,
        ):
            one.shutdown(socket.SHUT_RDWR)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        self._connection = await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, application_name=f"holdfast {self._use}", **KEEPALIVE
        )
        self._plans_by_key = self._moving and await psycopg_async.plan_by_key(self._connection)
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close()

    async def close(self) -> None:
        async with self._lock:
            await self._drop()
