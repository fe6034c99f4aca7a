"""Operations on an asynchronous psycopg connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from holdfast.drivers.drive import drive_async
from holdfast.drivers.psycopg import TRANSIENT, TRIES
from holdfast.sql.statement import Op, Rows, Statement

T = TypeVar("T")


async def run(connection: psycopg.AsyncConnection[Any], op: Op[T]) -> T:
    """Drive an operation on this connection, in whatever transaction it has."""
    async with connection.cursor(row_factory=tuple_row) as cursor:

        async def execute(statement: Statement[Any]) -> Rows:
            await cursor.execute(statement.sql, statement.params)
            return await cursor.fetchall() if cursor.description else ()

        return await drive_async(op, execute)


async def transact(connection: psycopg.AsyncConnection[Any], make_op: Callable[[], Op[T]]) -> T:
    """Drive an operation in a transaction of its own, again if others were in its way."""
    for left in reversed(range(TRIES)):
        try:
            async with connection.transaction():
                return await run(connection, make_op())
        except TRANSIENT:
            if not left:
                raise
            await asyncio.sleep(random.uniform(0.01, 0.05))
    raise AssertionError("unreachable")
