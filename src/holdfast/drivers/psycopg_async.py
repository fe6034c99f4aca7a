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


async def run(connection: psycopg.AsyncConnection[Any], op: Op[T]) -> T:
    """Run an operation on this connection, in its current transaction.

    On an autocommit connection outside a transaction, an operation with several statements gets a transaction.
    """
    async with AsyncExitStack() as stack, connection.cursor(row_factory=tuple_row) as cursor:

        async def execute(statement: Statement[Any]) -> Rows:
            if statement.together and connection.autocommit and is_idle(connection):
                await stack.enter_async_context(connection.transaction())
            await cursor.execute(statement.sql, statement.params)
            return await cursor.fetchall() if cursor.description else ()

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
    """Drive an operation on an autocommit connection of one's own, again if others were in its way.

    Statements commit by themselves until one says that the rest belongs together; with `several`, all of them share a
    transaction. Behind a pooler each transaction sets what a session of ours would have set, and nothing is pipelined.
    A lock that could not be had in time is raised unless `again_if_locked`.
    """
    transient = TRANSIENT if again_if_locked else RACES
    pooled = isinstance(connection, AsyncOwnConnection) and connection.begin is not None
    sent: list[tuple[psycopg.AsyncCursor[Row], list[Row]]] = []
    for left in reversed(range(TRIES)):
        try:
            async with AsyncExitStack() as stack, connection.cursor(row_factory=tuple_row) as cursor:
                sent.clear()

                async def execute(statement: Statement[Any]) -> Rows:
                    if is_idle(connection):
                        if statement.pipelined and PIPELINES and not pooled:
                            await stack.enter_async_context(connection.pipeline())
                        if statement.together:
                            await stack.enter_async_context(transaction(connection))
                        elif pooled:
                            async with transaction(connection):
                                return await fetch(statement)
                    if not connection.pgconn.pipeline_status:
                        return await fetch(statement)
                    later: list[Row] = []
                    asked = connection.cursor(row_factory=tuple_row)
                    sent.append((await asked.execute(statement.sql, statement.params), later))
                    if not statement.pipelined:
                        for one, rows in sent:
                            rows.extend(await one.fetchall())
                        sent.clear()
                    return later

                async def fetch(statement: Statement[Any]) -> Rows:
                    await cursor.execute(statement.sql, statement.params)
                    return await cursor.fetchall() if cursor.description else ()

                if several:
                    await stack.enter_async_context(transaction(connection))
                return await drive_async(make_op(), execute)
        except transient:
            if not left:
                raise
            await asyncio.sleep(random.uniform(0.01, 0.05))
    raise AssertionError("unreachable")
