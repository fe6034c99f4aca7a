"""Operations on a SQLAlchemy connection or session, in its transaction; on asynchronous ones too.

SQLAlchemy runs an asynchronous connection as a blocking one in a greenlet (`run_sync`), so one driver serves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

from psycopg.pq import TransactionStatus
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, scoped_session

from holdfast.domain.errors import ConfigurationError
from holdfast.drivers import asyncpg
from holdfast.drivers.drive import drive
from holdfast.sql.statement import Op, Rows, Statement

T = TypeVar("T")

BORROWED = (Connection, Session, scoped_session)
_PSYCOPG = ("psycopg", "psycopg_async", "psycopg2")


def run(connection: Connection | Session | scoped_session[Any], op: Op[T]) -> T:
    """Run an operation. A session is flushed first, because the run may depend on its pending changes.

    With the isolation level AUTOCOMMIT, an operation with several statements gets a transaction.
    """
    if not isinstance(connection, Connection):
        connection.flush()
        connection = connection.connection()
    borrowed = connection
    _check_database_driver(borrowed)

    with ExitStack() as stack:

        def execute(statement: Statement[Any]) -> Rows:
            if statement.together and _commits_each(borrowed):
                stack.enter_context(_transaction(borrowed))
            result = borrowed.exec_driver_sql(*_bound(borrowed, statement))
            return [tuple(row) for row in result.fetchall()] if result.returns_rows else ()

        return drive(op, execute)


async def run_async(connection: Any, op: Op[T]) -> T:
    """Run an operation on an asynchronous connection, session or scoped session."""
    borrowed = connection if hasattr(connection, "run_sync") else connection()
    done: T = await borrowed.run_sync(run, op)
    return done


def _check_database_driver(connection: Connection) -> None:
    driver = connection.dialect.driver
    if driver != "asyncpg" and driver not in _PSYCOPG:
        raise ConfigurationError(
            f"on() works with SQLAlchemy over {', '.join((*_PSYCOPG, 'asyncpg'))}; this engine uses {driver}"
        )


def _bound(connection: Connection, statement: Statement[Any]) -> tuple[str, Any]:
    if connection.dialect.driver != "asyncpg":
        return statement.sql, dict(statement.params)
    from sqlalchemy.util import await_only

    types: Mapping[str, str] = {}
    # If Postgres does not answer here, the statement itself raises SQLAlchemy's error.
    with suppress(Exception):
        types = await_only(asyncpg.learn_types(connection.connection.driver_connection, statement.sql))
    return asyncpg.bound(statement.sql, types, statement.params)


def _commits_each(connection: Connection) -> bool:
    """Whether each statement would commit by itself, according to the driver's connection."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.driver == "asyncpg":
        adapted: Any = connection.connection.dbapi_connection
        return bool(adapted.autocommit) and not driver.is_in_transaction()
    return bool(driver.autocommit) and driver.info.transaction_status == TransactionStatus.IDLE


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    connection.exec_driver_sql("begin")
    try:
        yield
    except BaseException:
        # A lost connection has nothing to roll back, and the caller must see the error that caused the loss.
        with suppress(Exception):
            connection.exec_driver_sql("rollback")
        raise
    connection.exec_driver_sql("commit")
