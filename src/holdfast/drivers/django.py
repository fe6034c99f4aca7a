"""Operations on Django's own connection, in its transaction.

Django's cursors interpolate parameters into the statement, and Postgres plans each statement anew. That is right for a
connection that is closed after each request. On a persistent connection, statements are prepared instead, which halves
the server's share of an `enqueue`, and outside a transaction they are executed by name, without a cursor. A connection
counts as persistent after a few of our statements. One query then determines whether it goes to a single server process
or through a pooler, where nothing may be prepared.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from django.db import transaction
from psycopg.adapt import Transformer
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.domain.errors import ConfigurationError
from holdfast.drivers.drive import drive
from holdfast.drivers.prepared import POLL_EVERY, PreparedStatements
from holdfast.sql.statement import Op, Rows, Statement

T = TypeVar("T")

# Statements are prepared after this many uses of a connection; `_NEVER` marks one behind a pooler.
PREPARE_AFTER = 5
_NEVER = -1
_uses: WeakKeyDictionary[psycopg.Connection[Any], int] = WeakKeyDictionary()
# The statements of connections that have their own server process.
_prepared: WeakKeyDictionary[psycopg.Connection[Any], PreparedStatements] = WeakKeyDictionary()


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
        cursor: Any = None

        def execute(statement: Statement[Any]) -> Rows:
            nonlocal cursor
            if statement.together and not connection.in_atomic_block and connection.get_autocommit():
                stack.enter_context(transaction.atomic(using=connection.alias))
            if prepare and cursor is None:
                rows = _fetch_by_name(connection, statement)
                if rows is not None:
                    return rows
            if cursor is None:
                cursor = stack.enter_context(connection.cursor())
                # Query logging, for instance with DEBUG, needs Django's cursor, which knows the text with its
                # parameters.
                if prepare and not connection.queries_logged and _is_persistent(connection.connection):
                    cursor.cursor = PreparingCursor(connection.connection, row_factory=tuple_row)
            cursor.execute(statement.sql, statement.params)
            # The same as `cursor.description is not None`, without building the description.
            result = cursor.cursor.pgresult
            found: Rows = cursor.fetchall() if result is not None and result.nfields else ()
            return found

        return drive(op, execute)


def _fetch_by_name(connection: Any, statement: Statement[Any]) -> Rows | None:
    """Execute a statement by name on a persistent connection, outside a transaction; None if it needs a cursor.

    In a transaction, an error would abort what else is in it, and the server may not have the statement any more. What
    `connection.cursor()` checks is checked here too; logging and wrappers of queries need a cursor.
    """
    if connection.in_atomic_block or connection.queries_logged or connection.execute_wrappers:
        return None
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    raw: psycopg.Connection[Any] = connection.connection
    statements = _prepared.get(raw)
    pgconn = raw.pgconn
    if (
        statements is None
        or not raw.autocommit
        or pgconn.transaction_status != TransactionStatus.IDLE
        or pgconn.pipeline_status
        or pgconn.parameter_status(b"client_encoding") != b"UTF8"
    ):
        return None
    with connection.wrap_database_errors:
        known = statements.known.get(statement.sql)
        if known is None and statement.sql not in statements.uses:
            statements.uses[statement.sql] = 1
            statements.wanted.append(statement)
            with raw.lock:
                raw.wait(statements.prepare_wanted())
            known = statements.known.get(statement.sql)
        values = known.encoded(statement.params) if known is not None else None
        if known is None or values is None:
            return None
        # The session's time zone may have changed, which a transformer reads once.
        statements.transformer = Transformer(raw)
        try:
            with raw.lock:
                readable = partial(statements.input_poll.poll, POLL_EVERY)
                return statements.rows_of(statements.exchange(raw, known, values, readable))
        except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported):
            return None  # it was deallocated, or a migration has changed a column of it; nothing was executed
        except BaseException as error:
            if not isinstance(error, psycopg.Error):  # it was interrupted; Django replaces only lost connections
                connection.close()
            raise


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
            _prepared.pop(connection, None)
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
    if uses == PREPARE_AFTER:
        _prepared[connection] = PreparedStatements(connection)
    return uses == PREPARE_AFTER


def _server_process(connection: psycopg.Connection[Any]) -> int | None:
    found = psycopg.ClientCursor(connection, row_factory=tuple_row).execute("select pg_catalog.pg_backend_pid()")
    row = found.fetchone()
    return None if row is None else int(row[0])
