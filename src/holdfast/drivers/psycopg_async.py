"""The asynchronous version of `drivers.psycopg`."""

from __future__ import annotations

import asyncio
import random
import select
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.drivers.connections import STALE_CHECKS, adopt, check_encoding, connection_arguments, setting_up
from holdfast.drivers.drive import drive_async
from holdfast.drivers.prepared import USES, PreparedStatements
from holdfast.drivers.psycopg import PIPELINES, RACES, TRANSIENT, TRIES, ReadTimeout, bounded, is_idle
from holdfast.drivers.sessions import Session
from holdfast.sql.statement import Op, Row, Rows, Statement

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

T = TypeVar("T")


async def fetch(connection: psycopg.AsyncConnection[Any], statement: Statement[Any]) -> Rows:
    """Execute a statement with a cursor and return its rows."""
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(statement.sql, statement.params)
        return await cursor.fetchall() if cursor.description else ()


class AsyncOwnConnection(psycopg.AsyncConnection[Any]):
    """The asynchronous version of OwnConnection."""

    session: Session | None = None
    begin: bytes | None = None
    prepared: PreparedStatements | None = None

    @classmethod
    async def connect(  # type: ignore[override]
        cls, url: str, *, session: Session, pooler: str = "auto", **arguments: Any
    ) -> Self:
        connection = await super().connect(url, **connection_arguments(session, arguments))
        try:
            connection.session = session
            check_encoding(connection)
            cursor = await connection.execute(setting_up(connection, session, pooler))
            connection.begin = adopt(connection, session, pooler, await cursor.fetchone())
            if not connection.pooled and connection.prepare_threshold is not None:
                connection.prepared = PreparedStatements(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def pooled(self) -> bool:
        return self.begin is not None

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        if self.session is None or self.session.read_timeout is None:
            return await super().wait(gen, *args, **kwargs)
        try:
            return await super().wait(bounded(gen, self.session.read_timeout), *args, **kwargs)
        except ReadTimeout:
            await self.close()
            raise

    async def fetch(self, statement: Statement[Any]) -> Rows:
        """Execute a statement, by name if it has been prepared, and return its rows."""
        prepared = self.prepared
        if prepared is not None:
            known = prepared.known.get(statement.sql)
            if known is not None:
                values = known.encoded(statement.params)
                if values is not None:
                    async with self.lock:
                        return prepared.rows_of(await self.wait(prepared.send(known, values)))
            else:
                uses = prepared.uses[statement.sql] = prepared.uses.get(statement.sql, 0) + 1
                if uses == USES:
                    prepared.wanted.append(statement)
        return await fetch(self, statement)

    async def prepare_wanted(self, prepared: PreparedStatements) -> None:
        """Prepare the statements that were executed often. Only while no transaction is open."""
        async with self.lock:
            await self.wait(prepared.prepare_wanted())

    async def is_stale(self) -> bool:
        """Whether the server has closed this connection while it was idle. Costs no round trip unless it looks so."""
        try:
            poll = select.poll()
            poll.register(self.fileno(), select.POLLIN)
            if poll.poll(0):
                await self.execute("")
        except (psycopg.Error, OSError):
            return True
        return False


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


async def run(connection: psycopg.AsyncConnection[Any], op: Op[T]) -> T:
    """Run an operation on this connection, in its current transaction.

    On an autocommit connection outside a transaction, an operation with several statements gets a transaction.
    """
    async with AsyncExitStack() as stack:

        async def execute(statement: Statement[Any]) -> Rows:
            if statement.together and connection.autocommit and is_idle(connection):
                await stack.enter_async_context(connection.transaction())
            return await fetch(connection, statement)

        return await drive_async(op, execute)


@asynccontextmanager
async def transaction(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """A transaction on a connection that has none open."""
    begin = connection.begin if isinstance(connection, AsyncOwnConnection) else None
    await connection.execute(begin or b"begin", prepare=False)
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):  # a lost connection has been rolled back by the server
            await connection.rollback()
        raise
    # In a pipeline, commit() does nothing: the connection does not know yet that a transaction has begun.
    await (connection.execute(b"commit", prepare=False) if connection.pgconn.pipeline_status else connection.commit())


async def transact(
    connection: psycopg.AsyncConnection[Any],
    make_op: Callable[[], Op[T]],
    *,
    several: bool = False,
    again_if_locked: bool = True,
) -> T:
    """Run an operation on one of our own autocommit connections, and retry it after a conflict.

    Each statement commits by itself, up to the first that is marked `together`: that one and the rest share a
    transaction; with `several`, all of them do. Behind a pooler, every transaction applies our session settings, and
    nothing is pipelined. A lock timeout is raised instead of retried unless `again_if_locked` is set.
    """
    transient = TRANSIENT if again_if_locked else RACES
    own = connection if isinstance(connection, AsyncOwnConnection) else None
    pooled = own is not None and own.begin is not None
    fetch_rows = own.fetch if own is not None else partial(fetch, connection)
    sent: list[tuple[psycopg.AsyncCursor[Row], list[Row]]] = []
    for left in reversed(range(TRIES)):
        try:
            async with AsyncExitStack() as stack:
                if own is not None and own.prepared is not None and own.prepared.wanted:
                    await own.prepare_wanted(own.prepared)
                sent.clear()

                async def execute(statement: Statement[Any]) -> Rows:
                    if connection.pgconn.transaction_status == TransactionStatus.IDLE:
                        if statement.pipelined and PIPELINES and not pooled:
                            await stack.enter_async_context(connection.pipeline())
                        if statement.together:
                            await stack.enter_async_context(transaction(connection))
                        elif pooled:
                            async with transaction(connection):
                                return await fetch_rows(statement)
                    if not connection.pgconn.pipeline_status:
                        return await fetch_rows(statement)
                    later: list[Row] = []
                    asked = connection.cursor(row_factory=tuple_row)
                    sent.append((await asked.execute(statement.sql, statement.params), later))
                    if not statement.pipelined:
                        for one, rows in sent:
                            rows.extend(await one.fetchall())
                        sent.clear()
                    return later

                if several:
                    await stack.enter_async_context(transaction(connection))
                return await drive_async(make_op(), execute)
        except transient:
            if not left:
                raise
            await asyncio.sleep(random.uniform(0.01, 0.05))
    raise AssertionError("unreachable")
