"""Sessions: the settings that Holdfast's own connections apply, whatever the role, the database and the server set.

A role may have another isolation level, read-only transactions, another time zone or no lock timeout, and a server with
default settings compiles expensive plans. Our statements are written for one set of values, so a connection sets all of
them when it is opened, in one round trip. The settings of a caller's connection (`client.on`) are never changed.

Behind a pooler in transaction mode a connection has no session of its own: the next client of the server process would
inherit its settings, and its own next statement could run in another process. Such a connection is detected by
`pg_backend_pid()`, which differs from the process id that the pooler reported when it accepted the connection. Then
every transaction applies the same values (`begin`), no statement is prepared by name, and LISTEN is not used.
"""

from __future__ import annotations

import select
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import psycopg

from holdfast.domain.errors import ConfigurationError
from holdfast.drivers.read_timeout import ReadTimeout, bounded

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

_FIXED: Mapping[str, str] = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    # Every name in our statements is qualified with its schema.
    "search_path": "pg_catalog, pg_temp",
    # Formats that psycopg can decode, and numbers with all their digits.
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    # Nulls in array parameters, and names as the schema check expects them.
    "array_nulls": "on",
    "quote_all_identifiers": "off",
    # Short statements gain nothing from compiled plans. With the settings below, estimated costs are so high that a
    # server with default settings would compile every statement: draining runs took three to four times as long.
    "jit": "off",
    # Connections may stay idle in pools, or listen, without a limit.
    "idle_session_timeout": "0",
}

# Small hot tables get plans that read or sort all of them, and a prepared statement keeps such a plan when they have
# grown: a claim of 500 from 16,000 took 14 ms instead of 5. With these, only reading by key is left to choose. A plan
# made for the values at hand compares each of 500 endings with each lease, which takes ten times as long; generic ones
# are as good from the first execution on, whether statements are prepared or not.
_BY_KEY: Mapping[str, str] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "plan_cache_mode": "force_generic_plan",
}


@dataclass(frozen=True)
class Session:
    """The settings of one use of the database. Times are in seconds.

    `silence` is how long the connection waits for a response before it gives up; None leaves that to its user.
    `by_key` restricts plans to those that read by key.
    """

    use: str
    lock_timeout: float = 2.0
    statement_timeout: float = 30.0
    idle_in_transaction: float = 30.0
    silence: float | None = None
    by_key: bool = False
    synchronous: bool = True

    def settings(self, server_version: int) -> dict[str, str]:
        found = dict(_FIXED)
        found["lock_timeout"] = _milliseconds(self.lock_timeout)
        found["statement_timeout"] = _milliseconds(self.statement_timeout)
        found["idle_in_transaction_session_timeout"] = _milliseconds(self.idle_in_transaction)
        if server_version >= 170000:
            found["transaction_timeout"] = "0"
        if self.by_key:
            found.update(_BY_KEY)
        if not self.synchronous:
            found["synchronous_commit"] = "off"
        return found

    def local(self, server_version: int) -> bytes:
        """Return the statement that applies the settings to the current transaction."""
        calls = _calls(self.settings(server_version), "true")
        return f"select {calls}".encode()

    def begin(self, server_version: int) -> bytes:
        """Return the statement that begins a transaction independent of the session's settings."""
        return b"begin isolation level read committed read write not deferrable; " + self.local(server_version)


CLIENT = Session("client", silence=40.0)
# A caller of the API gets a response within about ten seconds, even if it is an error.
API = Session("api", lock_timeout=1.0, statement_timeout=6.0, silence=7.0)
# Losing a notification in a server crash does no harm: no connection is left that could receive it.
API_BELL = Session("api", statement_timeout=6.0, silence=7.0, synchronous=False)
LISTENER = Session("listener", statement_timeout=5.0)
SWEEP = Session("sweep", statement_timeout=10.0, silence=15.0)
MIGRATION = Session("migration", lock_timeout=2.0, statement_timeout=0, idle_in_transaction=0)
# A run's own transaction belongs to the task. Only the statements that settle the run are limited.
RUN = Session("run", lock_timeout=30.0, statement_timeout=60.0, silence=70.0)


def worker(use: str, *, moving: bool, limit: float) -> Session:
    """A worker's connection. If `moving`, it never waits long for a lock, because its batches hold many runs."""
    return Session(use, 0.1 if moving else 2.0, statement_timeout=limit, idle_in_transaction=15.0, by_key=moving)


# A task may compute for any time between two statements.
_BEGIN_FOR_TASK = (
    b"begin isolation level read committed read write not deferrable; "
    b"set local idle_in_transaction_session_timeout = 0; select pg_catalog.pg_backend_pid()"
)


class OwnConnection(psycopg.Connection[Any]):
    """A connection of Holdfast, in autocommit mode. `begin` starts its transactions if it goes through a pooler."""

    session: Session | None = None
    begin: bytes | None = None

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
        if self.session is None or self.session.silence is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(bounded(gen, self.session.silence), *args, **kwargs)
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
    """The same, asynchronous."""

    session: Session | None = None
    begin: bytes | None = None

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
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def pooled(self) -> bool:
        return self.begin is not None

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        if self.session is None or self.session.silence is None:
            return await super().wait(gen, *args, **kwargs)
        try:
            return await super().wait(bounded(gen, self.session.silence), *args, **kwargs)
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
            f"the database {connection.info.dbname!r} has the encoding {found}, which cannot store all characters; "
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
    calls = _calls(session.settings(connection.info.server_version), local)
    return f"select pg_catalog.pg_backend_pid(), {calls}".encode()


def _calls(settings: Mapping[str, str], local: str) -> str:
    calls = [f"pg_catalog.set_config('{name}', '{value}', {local})" for name, value in settings.items()]
    # In the role `replica`, a session fires no triggers: nothing would guard the transitions of runs, and no job would
    # start. Only some roles may change the setting, so it is changed only if necessary.
    replica = "pg_catalog.current_setting('session_replication_role') = 'replica'"
    calls.append(f"case when {replica} then pg_catalog.set_config('session_replication_role', 'origin', {local}) end")
    return ", ".join(calls)


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


def _has_something_to_read(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
