"""Holdfast's own connections: opened with the settings of a session, and with a read timeout.

Behind a pooler in transaction mode a connection has no session of its own: the next client of the server process would
inherit its settings, and its own next statement could run in another process. Such a connection is detected by
`pg_backend_pid()`, which differs from the process id that the pooler reported when it accepted the connection. Then
every transaction applies the settings itself (`begin`), no statement is prepared by name, and LISTEN is not used.

A Postgres process that is suspended keeps its sockets open, and its kernel acknowledges every packet: there is no
error, and no timeout of the server or of TCP applies. So a connection limits how long it waits for a response.
"""

from __future__ import annotations

import select
from collections.abc import Generator, Mapping
from time import monotonic
from typing import Any, Self, TypeVar

import psycopg

from holdfast.domain.errors import ConfigurationError
from holdfast.drivers.prepared import PreparedStatements
from holdfast.drivers.sessions import RUN, Session, calls

T = TypeVar("T")

ENCODING = "UTF8"

# A peer that disappears without closing the connection is noticed within about ten seconds.
KEEPALIVE: Mapping[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# Errors of the connection or the server, not of the caller.
REFUSED = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)

# A task may compute for any length of time between two statements.
_BEGIN_FOR_TASK = (
    b"begin isolation level read committed read write not deferrable; "
    b"set local idle_in_transaction_session_timeout = 0; select pg_catalog.pg_backend_pid()"
)


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
        connection = super().connect(url, **_arguments(session, arguments))
        try:
            connection.session = session
            _check_encoding(connection)
            row = connection.execute(_setting_up(connection, session, pooler)).fetchone()
            connection.begin = _adopt(connection, session, pooler, row)
            connection.prepared = _preparing(connection)
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
        connection = super().connect(url, **_arguments(RUN, {}))
        try:
            _check_encoding(connection)
            cursor = connection.execute(_BEGIN_FOR_TASK, prepare=False)
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

    def is_stale(self) -> bool:
        """Whether the server has closed this connection while it was idle. Costs no round trip unless it looks so."""
        try:
            if _has_something_to_read(self.fileno()):
                self.execute("")
        except (psycopg.Error, OSError):
            return True
        return False


class AsyncOwnConnection(psycopg.AsyncConnection[Any]):
    """The asynchronous version of OwnConnection."""

    session: Session | None = None
    begin: bytes | None = None
    prepared: PreparedStatements | None = None

    @classmethod
    async def connect(  # type: ignore[override]
        cls, url: str, *, session: Session, pooler: str = "auto", **arguments: Any
    ) -> Self:
        connection = await super().connect(url, **_arguments(session, arguments))
        try:
            connection.session = session
            _check_encoding(connection)
            cursor = await connection.execute(_setting_up(connection, session, pooler))
            connection.begin = _adopt(connection, session, pooler, await cursor.fetchone())
            connection.prepared = _preparing(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def pooled(self) -> bool:
        return self.begin is not None

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        if self.session is None or self.session.read_timeout is None:
            return await super().wait(gen, *args, **kwargs)
        try:
            return await super().wait(bounded(gen, self.session.read_timeout), *args, **kwargs)
        except ReadTimeout:
            await self.close()
            raise

    async def is_stale(self) -> bool:
        """Whether the server has closed this connection while it was idle. Costs no round trip unless it looks so."""
        try:
            if _has_something_to_read(self.fileno()):
                await self.execute("")
        except (psycopg.Error, OSError):
            return True
        return False


def _arguments(session: Session, given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **KEEPALIVE,
        "autocommit": True,
        "fallback_application_name": f"holdfast {session.use}",
        "client_encoding": ENCODING,
        **given,
    }


def _check_encoding(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Raise unless the encoding of the database can store all characters."""
    found = connection.info.parameter_status("server_encoding")
    if found is not None and found != ENCODING:
        raise ConfigurationError(
            f"the database {connection.info.dbname!r} uses the encoding {found}, which cannot store all characters; "
            f"Holdfast needs {ENCODING}. Create another: create database ... encoding '{ENCODING}' template template0"
        )


def _setting_up(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], session: Session, pooler: str
) -> bytes:
    """One statement that returns the server's process id and applies the settings; behind a pooler, only to itself."""
    local = {
        "auto": f"pg_catalog.pg_backend_pid() <> {connection.info.backend_pid}",
        "off": "false",
    }.get(pooler, "true")
    settings = calls(session.settings(connection.info.server_version), local)
    return f"select pg_catalog.pg_backend_pid(), {settings}".encode()


def _adopt(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    session: Session,
    pooler: str,
    row: tuple[Any, ...] | None,
) -> bytes | None:
    """Return the statement that begins transactions; None if the connection has its own session, now set up."""
    elsewhere = row is None or row[0] != connection.info.backend_pid
    if pooler == "off" or (pooler == "auto" and not elsewhere):
        return None
    if pooler != "prepared":
        connection.prepare_threshold = None
    return session.begin(connection.info.server_version)


def _preparing(connection: OwnConnection | AsyncOwnConnection) -> PreparedStatements | None:
    return None if connection.pooled or connection.prepare_threshold is None else PreparedStatements(connection)


def _has_something_to_read(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
