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

# Conflicts with concurrent transactions, which can only be resolved by a retry.
# A prepared statement that the server no longer has, or whose result has other types now, is prepared again.
RACES = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.FeatureNotSupported,
)
TRANSIENT = (*RACES, psycopg.errors.LockNotAvailable)
TRIES = 5
# libpq before version 14 has no pipeline mode.
PIPELINES = psycopg.Pipeline.is_supported()


def fetch(connection: psycopg.Connection[Any], statement: Statement[Any]) -> Rows:
    """Execute a statement with a cursor and return its rows."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement.sql, statement.params)
        # The same as `cursor.description is not None`, without building the description.
        return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else ()


def fetch_by_name(connection: psycopg.Connection[Any], statement: Statement[Any]) -> Rows:
    """Execute a statement by name if the connection has prepared it, and otherwise with a cursor."""
    if isinstance(connection, OwnConnection) and connection.prepared is not None:
        waits = connection.prepared.execute(statement)
        if waits is not None:
            with connection.lock:
                rows: Rows = connection.wait(waits)
                return rows
    return fetch(connection, statement)


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Prepare the statements that this connection, which has no open transaction, has executed often."""
    if isinstance(connection, OwnConnection) and connection.prepared is not None and connection.prepared.wanted:
        with connection.lock:
            connection.wait(connection.prepared.prepare_wanted())


def is_idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether no transaction is open."""
    return connection.info.transaction_status is TransactionStatus.IDLE


def run(connection: psycopg.Connection[Any], op: Op[T]) -> T:
    """Run an operation on this connection, in its current transaction.

    On an autocommit connection outside a transaction, an operation with several statements gets a transaction.
    """
    with ExitStack() as stack:

        def execute(statement: Statement[Any]) -> Rows:
            if statement.together and connection.autocommit and is_idle(connection):
                stack.enter_context(connection.transaction())
            return fetch(connection, statement)

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
    """Run an operation on one of our own autocommit connections, and retry it after a conflict.

    Each statement commits by itself, up to the first that is marked `together`: that one and the rest share a
    transaction. Behind a pooler, every transaction applies our session settings, and nothing is pipelined.
    """
    pooled = isinstance(connection, OwnConnection) and connection.begin is not None
    sent: list[tuple[psycopg.Cursor[Row], list[Row]]] = []
    for left in reversed(range(TRIES)):
        try:
            with ExitStack() as stack:
                prepare(connection)
                sent.clear()

                def execute(statement: Statement[Any]) -> Rows:
                    if connection.pgconn.transaction_status == TransactionStatus.IDLE:
                        if statement.pipelined and PIPELINES and not pooled:
                            stack.enter_context(connection.pipeline())
                        if statement.together:
                            stack.enter_context(transaction(connection))
                        elif pooled:
                            with transaction(connection):
                                return fetch_by_name(connection, statement)
                    if not connection.pgconn.pipeline_status:
                        return fetch_by_name(connection, statement)
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
