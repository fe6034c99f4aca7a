"""Operations on a psycopg connection, and Holdfast's own connections: with a read timeout, and taken from pools.

A Postgres process that is suspended keeps its sockets open, and its kernel acknowledges every packet: there is no
error, and no timeout of the server or of TCP applies. So a connection limits how long it waits for a response.

After a restart of the server every connection of a pool is dead, and each would fail the call that uses it. The server
sends a message before it closes a connection, so polling the socket detects this without a round trip.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.drivers.connections import (
    BEGIN_FOR_TASK,
    STALE_CHECKS,
    adopt,
    check_encoding,
    connection_arguments,
    setting_up,
)
from holdfast.drivers.drive import drive
from holdfast.drivers.prepared import POLL_EVERY, USES, Prepared, PreparedStatements, make_input_poll
from holdfast.drivers.sessions import RUN, Session
from holdfast.sql.statement import Op, Row, Rows, Statement

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult
    from psycopg_pool import ConnectionPool

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


class ReadTimeout(psycopg.OperationalError):
    """The server did not respond in time. Whether the statement was executed is unknown; the connection is closed."""


def bounded(waits: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """Add a time limit to psycopg's waits. Each returns several times a second, with 0 if nothing can be read."""
    ends_at = monotonic() + seconds
    try:
        wanted = next(waits)
        while True:
            ready = yield wanted
            if not ready and monotonic() >= ends_at:
                raise ReadTimeout(f"Postgres did not respond within {seconds:g} s")
            wanted = waits.send(ready)
    except StopIteration as done:
        answered: T = done.value
        return answered


class OwnConnection(psycopg.Connection[Any]):
    """A connection that Holdfast opens, in autocommit mode. Behind a pooler, `begin` starts its transactions.

    Otherwise it has a session of its own, in which it may prepare statements.
    """

    session: Session | None = None
    begin: bytes | None = None
    prepared: PreparedStatements | None = None

    @classmethod
    def connect(  # type: ignore[override]
        cls, url: str, *, session: Session, pooler: str = "auto", **arguments: Any
    ) -> Self:
        connection = super().connect(url, **connection_arguments(session, arguments))
        try:
            connection.session = session
            check_encoding(connection)
            row = connection.execute(setting_up(connection, session, pooler)).fetchone()
            connection.begin = adopt(connection, session, pooler, row)
            if not connection.pooled and connection.prepare_threshold is not None:
                connection.prepared = PreparedStatements(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @classmethod
    def begin_for_task(cls, url: str) -> Self:
        """Open a connection in a transaction that belongs to a task.

        The role's settings are kept, because the task's own statements may rely on them. Only the isolation level is
        set, because the run will be settled in this transaction.
        """
        connection = super().connect(url, **connection_arguments(RUN, {}))
        try:
            check_encoding(connection)
            cursor = connection.execute(BEGIN_FOR_TASK, prepare=False)
            while cursor.nextset():
                pass
            if cursor.fetchone() != (connection.info.backend_pid,):
                connection.prepare_threshold = None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def pooled(self) -> bool:
        return self.begin is not None

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        if self.session is None or self.session.read_timeout is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(bounded(gen, self.session.read_timeout), *args, **kwargs)
        except ReadTimeout:
            self.close()
            raise

    def fetch(self, statement: Statement[Any]) -> Rows:
        """Execute a statement, by name if it has been prepared, and return its rows."""
        prepared = self.prepared
        if prepared is not None:
            known = prepared.known.get(statement.sql)
            if known is not None:
                values = known.encoded(statement.params)
                if values is not None:
                    return prepared.rows_of(self._exchange(prepared, known, values))
            else:
                uses = prepared.uses[statement.sql] = prepared.uses.get(statement.sql, 0) + 1
                if uses == USES:
                    prepared.wanted.append(statement)
        return fetch(self, statement)

    def _exchange(self, prepared: PreparedStatements, known: Prepared, values: list[bytes | None]) -> list[PGresult]:
        """Execute a prepared statement within the read timeout."""
        seconds = self.session.read_timeout if self.session is not None else None
        ends_at = inf if seconds is None else monotonic() + seconds
        poll = prepared.input_poll.poll

        def readable() -> object:
            ready = poll(POLL_EVERY)
            if not ready and monotonic() >= ends_at:
                raise ReadTimeout(f"Postgres did not respond within {seconds:g} s")
            return ready

        with self.lock:
            return prepared.exchange(self, known, values, readable)

    def prepare_wanted(self, prepared: PreparedStatements) -> None:
        """Prepare the statements that were executed often. Only while no transaction is open."""
        with self.lock:
            self.wait(prepared.prepare_wanted())

    def is_stale(self) -> bool:
        """Whether the server has closed this connection while it was idle. Costs no round trip unless it looks so."""
        if self.closed:
            return True  # its file descriptor may be that of another file now
        try:
            input_poll = self.prepared.input_poll if self.prepared is not None else make_input_poll(self.pgconn)
            if input_poll.poll(0):
                self.execute("")
        except (psycopg.Error, OSError):
            return True
        return False


@contextmanager
def fresh(pool: ConnectionPool[OwnConnection]) -> Iterator[OwnConnection]:
    """Take a connection. If the server has closed it, discard all idle connections and open a new one."""
    for left in reversed(range(STALE_CHECKS)):
        # Not as a context manager: it would commit, which costs time, and our drivers end what they begin.
        connection = pool.getconn()
        try:
            if not (left and connection.is_stale()):
                yield connection
                return
            connection.close()
        finally:
            pool.putconn(connection)
        pool.drain()


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
    own = connection if isinstance(connection, OwnConnection) else None
    pooled = own is not None and own.begin is not None
    fetch_rows = own.fetch if own is not None else partial(fetch, connection)
    sent: list[tuple[psycopg.Cursor[Row], list[Row]]] = []
    for left in reversed(range(TRIES)):
        try:
            with ExitStack() as stack:
                if own is not None and own.prepared is not None and own.prepared.wanted:
                    own.prepare_wanted(own.prepared)
                sent.clear()

                def execute(statement: Statement[Any]) -> Rows:
                    if connection.pgconn.transaction_status == TransactionStatus.IDLE:
                        if statement.pipelined and PIPELINES and not pooled:
                            stack.enter_context(connection.pipeline())
                        if statement.together:
                            stack.enter_context(transaction(connection))
                        elif pooled:
                            with transaction(connection):
                                return fetch_rows(statement)
                    if not connection.pgconn.pipeline_status:
                        return fetch_rows(statement)
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
