"""Operations on an asynchronous psycopg connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from holdfast.drivers.connections import AsyncOwnConnection
from holdfast.drivers.drive import drive_async
from holdfast.drivers.psycopg import PIPELINES, RACES, TRANSIENT, TRIES, is_idle
from holdfast.sql.statement import Op, Row, Rows, Statement

T = TypeVar("T")


async def fetch(connection: psycopg.AsyncConnection[Any], statement: Statement[Any]) -> Rows:
    """Execute a statement with a cursor and return its rows."""
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(statement.sql, statement.params)
        return await cursor.fetchall() if cursor.description else ()


async def fetch_by_name(connection: psycopg.AsyncConnection[Any], statement: Statement[Any]) -> Rows:
    """Execute a statement by name if the connection has prepared it, and otherwise with a cursor."""
    if isinstance(connection, AsyncOwnConnection) and connection.prepared is not None:
        waits = connection.prepared.execute(statement)
        if waits is not None:
            async with connection.lock:
                rows: Rows = await connection.wait(waits)
                return rows
    return await fetch(connection, statement)


async def prepare(connection: psycopg.AsyncConnection[Any]) -> None:
    """Prepare the statements that this connection, which has no open transaction, has executed often."""
    if isinstance(connection, AsyncOwnConnection) and connection.prepared is not None and connection.prepared.wanted:
        async with connection.lock:
            await connection.wait(connection.prepared.prepare_wanted())


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
    await connection.commit()


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
    pooled = isinstance(connection, AsyncOwnConnection) and connection.begin is not None
    sent: list[tuple[psycopg.AsyncCursor[Row], list[Row]]] = []
    for left in reversed(range(TRIES)):
        try:
            async with AsyncExitStack() as stack:
                await prepare(connection)
                sent.clear()

                async def execute(statement: Statement[Any]) -> Rows:
                    if is_idle(connection):
                        if statement.pipelined and PIPELINES and not pooled:
                            await stack.enter_async_context(connection.pipeline())
                        if statement.together:
                            await stack.enter_async_context(transaction(connection))
                        elif pooled:
                            async with transaction(connection):
                                return await fetch_by_name(connection, statement)
                    if not connection.pgconn.pipeline_status:
                        return await fetch_by_name(connection, statement)
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
