"""A worker's connections: each is reserved for one use, and is opened again when it is next used after an error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.drivers import psycopg_async, sessions
from holdfast.drivers.faults import TAKES_NO_WRITES, Fault, fault_of, is_read_only
from holdfast.drivers.psycopg_async import AsyncOwnConnection
from holdfast.sql.statement import Op

T = TypeVar("T")

# How long a server may take to act on a cancel request before the socket is closed.
CANCEL_WITHIN = 1.0


class Unavailable(Exception):
    """The database does not respond, or cannot execute this now. Whether the operation was executed is unknown."""


class ReadOnly(Unavailable):
    """The server accepts no writes: it is a standby, or read-only."""


class Busy(Exception):
    """Another transaction holds a lock that the operation needs. The operation was rolled back."""


class WorkerConnection(AsyncOwnConnection):
    """A connection without a read timeout of its own: `Database` limits the time of each operation."""

    wait = psycopg.AsyncConnection.wait


def said(error: BaseException) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


class Database:
    """One connection, used by one operation at a time. An error closes it; the next operation opens another.

    With `moving`, runs move over it in batches: its plans read by key only. An operation may take `time_limit`
    seconds.
    """

    def __init__(
        self, url: str, use: str, *, time_limit: float = 15.0, moving: bool = False, pooler: str = "auto"
    ) -> None:
        self._url = url
        self._time_limit = time_limit
        self._session = sessions.worker(use, moving=moving, limit=time_limit)
        self._pooler = pooler
        self._connection: WorkerConnection | None = None
        self._cutting: asyncio.Task[None] | None = None
        self._work: asyncio.Future[Any] | None = None
        self._since = 0.0
        self._lock = asyncio.Lock()

    @property
    def connected(self) -> bool:
        return self._connection is not None

    async def connect(self) -> None:
        """Connect if necessary. Raise Unavailable."""
        async with self._lock:
            if self._connection is None:
                try:
                    await self._connect()
                except (psycopg.Error, OSError) as error:
                    await self._drop()
                    raise Unavailable(said(error)) from error

    async def transact(self, make_op: Callable[[], Op[T]], *, several: bool = False) -> T:
        """Run an operation. Raise Unavailable if the database does not respond in time, and Busy if a lock blocks it.

        With `several`, all its statements share a transaction.
        """
        async with self._lock:
            self._since = monotonic()
            connection = self._connection
            # The driver's coroutine is the task itself: a layer around it would be resumed with every statement.
            run = partial(psycopg_async.transact, make_op=make_op, several=several, again_if_locked=False)
            work = self._work = asyncio.ensure_future(run(connection) if connection else self._connect_and(run))
            timer = asyncio.get_running_loop().call_later(self._time_limit, self.cut)
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                if work.cancelled():
                    raise Unavailable("the database could not be reached in time") from None
                # The caller was cancelled, and whether the operation was executed is unknown.
                await self._give_up(work)
                if work.done() and not work.cancelled():
                    work.exception()  # mark it as retrieved
                await self._drop()
                raise
            except (psycopg.Error, OSError) as error:
                fault = fault_of(error)
                if fault is Fault.UNAVAILABLE or not self._is_idle():
                    await self._drop()
                if is_read_only(error):
                    raise ReadOnly(f"Postgres {TAKES_NO_WRITES}") from error
                if fault is Fault.UNAVAILABLE:
                    raise Unavailable(said(error)) from error
                if fault is Fault.BUSY:
                    raise Busy(said(error)) from error
                raise
            except BaseException:
                if not self._is_idle():
                    await self._drop()
                raise
            finally:
                timer.cancel()
                self._work = None

    async def _connect_and(self, run: Callable[[WorkerConnection], Awaitable[T]]) -> T:
        return await run(await self._connect())

    def _is_idle(self) -> bool:
        return self._connection is None or self._connection.info.transaction_status == TransactionStatus.IDLE

    def cut(self, after: float = 0.0) -> None:
        """Give up on a response that has not arrived for this many seconds. Call it in the event loop's thread."""
        work = self._work
        if work is None or monotonic() - self._since < after:
            return
        if self._cutting is None or self._cutting.done():
            self._cutting = asyncio.get_running_loop().create_task(self._give_up(work))

    async def _give_up(self, work: asyncio.Future[Any]) -> None:
        """Cancel the statement on the server, so that it holds no locks; then, if necessary, close the socket."""
        connection = self._connection
        if connection is None:
            work.cancel()
            await asyncio.wait({work}, timeout=CANCEL_WITHIN)
            return
        cancelling = asyncio.create_task(connection.cancel_safe(timeout=CANCEL_WITHIN))
        cancelling.add_done_callback(_seen)
        await asyncio.wait({cancelling}, timeout=CANCEL_WITHIN)
        await asyncio.wait({work}, timeout=CANCEL_WITHIN if cancelling.done() and not cancelling.exception() else 0)
        if not work.done():
            self._shut(connection)
            await asyncio.wait({work}, timeout=CANCEL_WITHIN)

    def _shut(self, connection: WorkerConnection) -> None:
        with (
            contextlib.suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(connection.fileno())) as one,
        ):
            one.shutdown(socket.SHUT_RDWR)

    async def _connect(self) -> WorkerConnection:
        self._connection = await WorkerConnection.connect(self._url, session=self._session, pooler=self._pooler)
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close()

    async def close(self) -> None:
        async with self._lock:
            await self._drop()


def _seen(task: asyncio.Task[None]) -> None:
    """Suppress the warning about the error of a task that may fail."""
    if not task.cancelled():
        task.exception()
