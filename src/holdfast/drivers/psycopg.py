"""Operations on a psycopg connection."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.drivers.connections import OwnConnection
from holdfast.drivers.drive import drive
from holdfast.sql.statement import Op, Row, Rows, Statement

T = TypeVar("T")

# What Postgres refuses because of others who were busy at the same time; asking again is all there is to do.
RACES = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
TRANSIENT = (*RACES, psycopg.errors.LockNotAvailable)
TRIES = 5
# A libpq before 14 cannot.
PIPELINES = psycopg.Pipeline.is_supported()


def fetched(cursor: psycopg.Cursor[Row], statement: Statement[Any]) -> Rows:
    """Execute a statement and return its rows."""
    cursor.execute(statement.sql, statement.params)
    # What `cursor.description is not None` says, without building the description.
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else ()


def is_idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether no transaction is open."""
    return connection.info.transaction_status is TransactionStatus.IDLE


def run(connection: psycopg.Connection[Any], op: Op[T]) -> T:
    """Run an operation on this connection, in its current transaction.

    On an autocommit connection outside a transaction, an operation with several statements gets a transaction.
    """
    with ExitStack() as stack, connection.cursor(row_factory=tuple_row) as cursor:

        def execute(statement: Statement[Any]) -> Rows:
            if statement.together and connection.autocommit and is_idle(connection):
                stack.enter_context(connection.transaction())
            return fetched(cursor, statement)

        return drive(op, execute)


@contextmanager
def transaction(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """A transaction on a connection that has none open."""
    if not isinstance(connection, OwnConnection) or connection.begin is None:
        with connection.transaction():
            yield
        return
    connection.execute(connection.begin, prepare=False)
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):  # a lost connection has been rolled back by the server
            connection.rollback()
        raise
    connection.commit()


def transact(connection: psycopg.Connection[Any], make_op: Callable[[], Op[T]]) -> T:
    """Drive an operation on an autocommit connection of one's own, again if others were in its way.

    Statements commit by themselves until one says that the rest belongs together. Behind a pooler each of them has a
    transaction that sets what a session of ours would have set, and nothing is pipelined.
    """
    pooled = isinstance(connection, OwnConnection) and connection.begin is not None
    sent: list[tuple[psycopg.Cursor[Row], list[Row]]] = []
    for left in reversed(range(TRIES)):
        try:
            with ExitStack() as stack, connection.cursor(row_factory=tuple_row) as cursor:
                sent.clear()

                def execute(statement: Statement[Any]) -> Rows:
                    if connection.pgconn.transaction_status == TransactionStatus.IDLE:
                        if statement.pipelined and PIPELINES and not pooled:
                            stack.enter_context(connection.pipeline())
                        if statement.together:
                            stack.enter_context(transaction(connection))
                        elif pooled:
                            with transaction(connection):
                                return fetched(cursor, statement)
                    if not connection.pgconn.pipeline_status:
                        return fetched(cursor, statement)
                    later: list[Row] = []
                    asked = connection.cursor(row_factory=tuple_row)
                    sent.append((asked.execute(statement.sql, statement.params), later))
                    if not statement.pipelined:
                        for one, rows in sent:
                            rows.extend(one.fetchall())
                        sent.clear()
                    return later

                return drive(make_op(), execute)
        except TRANSIENT:
            if not left:
                raise
            time.sleep(random.uniform(0.01, 0.05))
    raise AssertionError("unreachable")
