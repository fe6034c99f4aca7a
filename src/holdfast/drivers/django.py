"""Operations on Django's own connection, in its transaction.

Django's cursors interpolate parameters into the statement, and Postgres plans each statement anew. That is right for a
connection that is closed after each request. On a persistent connection, statements are prepared instead, which halves
the server's share of an `enqueue`. A connection counts as persistent after a few of our statements. One query then
determines whether it goes to a single server process or through a pooler, where nothing may be prepared.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from django.db import transaction
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.domain.errors import ConfigurationError
from holdfast.drivers.drive import drive
from holdfast.sql.statement import Op, Rows, Statement

T = TypeVar("T")

# Statements are prepared after this many uses of a connection; `_NEVER` marks one behind a pooler.
PREPARE_AFTER = 5
_NEVER = -1
_uses: WeakKeyDictionary[psycopg.Connection[Any], int] = WeakKeyDictionary()


def run(connection: Any, op: Op[T], *, prepare: bool = False) -> T:
    """Run an operation on one of `django.db.connections`, in its current transaction.

    Outside `atomic()`, an operation with several statements gets a transaction. With `prepare`, statements are prepared
    on a persistent connection.
    """
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"Holdfast needs PostgreSQL, but the database {connection.alias!r} in DATABASES is {connection.vendor}; "
            'name another one in TASKS: "OPTIONS": {"DATABASE": alias}'
        )
    with ExitStack() as stack:
        cursor = stack.enter_context(connection.cursor())
        # Query logging, for instance with DEBUG, needs Django's cursor, which knows the text with its parameters.
        if prepare and not connection.queries_logged and _is_persistent(connection.connection):
            cursor.cursor = PreparingCursor(connection.connection, row_factory=tuple_row)

        def execute(statement: Statement[Any]) -> Rows:
            if statement.together and not connection.in_atomic_block and connection.get_autocommit():
                stack.enter_context(transaction.atomic(using=connection.alias))
            cursor.execute(statement.sql, statement.params)
            # The same as `cursor.description is not None`, without building the description.
            result = cursor.cursor.pgresult
            found: Rows = cursor.fetchall() if result is not None and result.nfields else ()
            return found

        return drive(op, execute)


class PreparingCursor(psycopg.Cursor[Any]):
    """Prepares its statements, on a connection that does not prepare any others."""

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        connection = self.connection
        before = connection.prepare_threshold
        connection.prepare_threshold = 0
        try:
            return super().execute(*args, **kwargs)
        except psycopg.errors.InvalidSqlStatementName:
            # The site's own code has deallocated the statement. Outside a transaction, nothing else is lost.
            _uses[connection] = _NEVER
            if connection.info.transaction_status != TransactionStatus.IDLE:
                raise
            return super().execute(*args, **kwargs, prepare=False)
        finally:
            connection.prepare_threshold = before


def _is_persistent(connection: psycopg.Connection[Any]) -> bool:
    """Whether this connection has been used often enough to prepare statements, and has its own server process."""
    uses = _uses.get(connection, 0)
    if uses > PREPARE_AFTER:
        return True
    if uses == _NEVER or connection.info.transaction_status == TransactionStatus.INERROR:
        return False
    if uses == PREPARE_AFTER and _server_process(connection) != connection.info.backend_pid:
        _uses[connection] = _NEVER
        return False
    _uses[connection] = uses + 1
    return uses == PREPARE_AFTER


def _server_process(connection: psycopg.Connection[Any]) -> int | None:
    found = psycopg.ClientCursor(connection, row_factory=tuple_row).execute("select pg_catalog.pg_backend_pid()")
    row = found.fetchone()
    return None if row is None else int(row[0])
