"""Operations on a SQLAlchemy connection or session, in its transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

from psycopg.pq import TransactionStatus
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from holdfast.drivers.drive import drive
from holdfast.sql.statement import Op, Rows, Statement

T = TypeVar("T")


def run(connection: Connection | Session, op: Op[T]) -> T:
    """Drive an operation. A session is flushed first: what it holds back may be what the run is about.

    With the isolation level AUTOCOMMIT, statements that belong together get a transaction.
    """
    if isinstance(connection, Session):
        connection.flush()
        connection = connection.connection()
    borrowed = connection

    with ExitStack() as stack:

        def execute(statement: Statement[Any]) -> Rows:
            if statement.together and _commits_each(borrowed):
                stack.enter_context(_transaction(borrowed))
            result = borrowed.exec_driver_sql(statement.sql, dict(statement.params))
            return [tuple(row) for row in result.fetchall()] if result.returns_rows else ()

        return drive(op, execute)


def _commits_each(connection: Connection) -> bool:
    """Whether each statement would commit by itself. Psycopg, of either generation, says so of its connection."""
    driver: Any = connection.connection.driver_connection
    return bool(driver.autocommit) and driver.info.transaction_status == TransactionStatus.IDLE


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    connection.exec_driver_sql("begin")
    try:
        yield
    except BaseException:
        # A connection that broke has nothing to roll back, and what broke it is what the caller has to see.
        with suppress(Exception):
            connection.exec_driver_sql("rollback")
        raise
    connection.exec_driver_sql("commit")
