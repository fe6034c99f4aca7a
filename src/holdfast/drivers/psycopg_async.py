"""Operations on an asynchronous psycopg connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.rows import tuple_row

from holdfast.drivers.drive import drive_async
from holdfast.drivers.psycopg import TRANSIENT, TRIES, is_idle
from holdfast.sql.statement import Op, Rows, Statement

T = TypeVar("T")


async def run(connection: psycopg.AsyncConnection[Any], op: Op[T]) -> T:
    """Drive an operation on this connection, in whatever transaction it has.

    On an autocommit connection outside a transaction, statements that belong together get one.
    """
    async with AsyncExitStack() as stack, connection.cursor(row_factory=tuple_row) as cursor:

        async def execute(statement: Statement[Any]) -> Rows:
            if statement.together and connection.autocommit and is_idle(connection):
                await stack.enter_async_context(connection.transaction())
            await cursor.execute(statement.sql, statement.params)
            return await cursor.fetchall() if cursor.description else ()

        return await drive_async(op, execute)


# Small hot tables get plans that read or sort all of them, and a prepared statement keeps such a plan when they have
# grown: a claim of 500 from 16,000 took 14 ms instead of 5. With these, only reading by key is left to choose. A plan
# made for the values at hand compares each of 500 endings with each lease, which takes ten times as long; generic ones
# are as good from the first execution on, whether statements are prepared or not.
_BY_KEY: LiteralString = (
    "enable_seqscan = off; set {0}enable_bitmapscan = off; set {0}enable_sort = off; set {0}enable_hashjoin = off; "
    "set {0}enable_mergejoin = off; set {0}enable_material = off; set {0}plan_cache_mode = force_generic_plan"
)
INDEXED: LiteralString = "begin; set local " + _BY_KEY.format("local ")
_INDEXED_FOR_GOOD: LiteralString = "set " + _BY_KEY.format("")


async def plan_by_key(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Have a connection make such plans for good, if it is nobody else's. False if it leads to a pooler.

    A pooler tells its clients a process that is not the server's, and lends the server to others between transactions.
    """
    cursor = await connection.execute("select pg_backend_pid()")
    row = await cursor.fetchone()
    if row is None or row[0] != connection.info.backend_pid:
        return False
    await connection.execute(_INDEXED_FOR_GOOD)
    return True


async def transact(
    connection: psycopg.AsyncConnection[Any], make_op: Callable[[], Op[T]], begin: LiteralString | None = None
) -> T:
    """Drive an operation on an autocommit connection of one's own, again if others were in its way.

    Statements commit by themselves until one says that the rest belongs together. With `begin`, which is sent as it
    is, all of them share a transaction.
    """
    for left in reversed(range(TRIES)):
        try:
            async with AsyncExitStack() as stack, connection.cursor(row_factory=tuple_row) as cursor:

                async def execute(statement: Statement[Any]) -> Rows:
                    if statement.together and is_idle(connection):
                        await stack.enter_async_context(connection.transaction())
                    await cursor.execute(statement.sql, statement.params)
                    return await cursor.fetchall() if cursor.description else ()

                if begin is not None:
                    await stack.enter_async_context(_begun(connection, begin))
                return await drive_async(make_op(), execute)
        except TRANSIENT:
            if not left:
                raise
            await asyncio.sleep(random.uniform(0.01, 0.05))
    raise AssertionError("unreachable")


@asynccontextmanager
async def _begun(connection: psycopg.AsyncConnection[Any], begin: LiteralString) -> AsyncIterator[None]:
    await connection.execute(begin)
    try:
        yield
    except BaseException:
        await connection.rollback()
        raise
    await connection.commit()
