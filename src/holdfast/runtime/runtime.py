"""The runtime of a client or worker: settings, a checked database, and a result store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import psycopg
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from holdfast.domain import ids
from holdfast.domain.errors import ConfigurationError, DatabaseReadOnly, DatabaseUnreachable
from holdfast.domain.masking import HIDDEN, mask_address
from holdfast.domain.records import ResultRecord
from holdfast.domain.tasks import load_modules
from holdfast.domain.values import StoredResult
from holdfast.doorbells.bell import BackgroundBell, Bell, CoalescingBell, open_bell
from holdfast.drivers import sessions
from holdfast.drivers.faults import TAKES_NO_WRITES, Fault, fault_of, is_lost, is_read_only
from holdfast.drivers.psycopg import OwnConnection
from holdfast.results import ResultStore, open_store
from holdfast.runtime.settings import Settings, load, masked
from holdfast.schema import grants, migrate

CONNECT_TIMEOUT = 10
# The messages of Postgres and of PgBouncer.
_NO_DATABASE = re.compile(r'database "(.+)" does not exist|no such database: (\S+)')


class Runtime:
    """Opened once per process; starts the embedded server if no database is configured.

    With `lasting`, that server is restarted if it dies, for long-running processes. With a `purpose`, the role must
    have the privileges that `holdfast db grants` lists for it.
    """

    def __init__(
        self, settings: Settings | None = None, *, check: bool = True, lasting: bool = False, purpose: str | None = None
    ) -> None:
        self.settings = settings or load()
        load_modules(("holdfast.tasks", *self.settings.tasks))
        self._server: Any = None
        self._purpose = purpose
        url = self.settings.given_database_url()
        if url is not None:
            self.database_url = url
            if check:
                self._require()
        else:
            self._start_embedded(lasting)
        self._store: ResultStore | None = None
        self._pid = os.getpid()

    def enter_process(self) -> None:
        """In a fork of the process that opened this, register as a separate user of the embedded server."""
        if self._pid == os.getpid():
            return
        if self._server is not None:
            from holdfast.embedded import ensure_running

            self._server = ensure_running(self._server.home)
        self._pid = os.getpid()

    def _start_embedded(self, lasting: bool) -> None:
        from holdfast.embedded import ensure_running

        self._server = ensure_running(Path(self.settings.home))
        if lasting:
            self._server.restart_when_dead()
        self.database_url = self._server.url
        with connect(self.database_url) as connection:
            behind = migrate.is_behind(connection)
        if behind:
            migrate.upgrade(self.database_url)
        self._require()

    def _require(self) -> None:
        with connect(self.database_url, self.settings.pooler) as connection:
            if self._purpose is not None:
                grants.require(connection, self._purpose)
            try:
                migrate.require(connection)
            except psycopg.errors.InsufficientPrivilege as error:
                raise grants.denied(connection, error) from error
            learn_server(connection)

    @property
    def store(self) -> ResultStore:
        if self._store is None:
            self._store = open_store(self.settings.artifacts)
        return self._store

    def load_result(self, found: ResultRecord) -> bytes:
        """Return the bytes of a result, from the database or the result store."""
        if found.ref is not None:
            return self.store.get(StoredResult(found.ref, found.size or 0, found.sha256 or ""))
        return (found.text or "null").encode()

    def open_bell(self, notify: Callable[[Iterable[str]], None], *, waiting: bool = True) -> Bell:
        """Return the configured bell; `notify` sends hints through Postgres.

        With `waiting=False`, ringing never waits for Redis.
        """
        url = self.settings.redis_url
        if self.settings.doorbell not in ("redis", "rq") or not url:
            return open_bell(self.settings.doorbell, notify)
        bell: Bell
        if self.settings.doorbell == "rq":
            from holdfast.runtime.rq_sweeper import RqBell

            bell = RqBell(url, self.connect_for_sweep, self.settings.ring_seconds)
        else:
            from holdfast.doorbells.redis import RedisSend

            bell = CoalescingBell(RedisSend(url))
        return bell if waiting else BackgroundBell(bell)

    def connect_for_sweep(self) -> OwnConnection:
        """Return a connection for a sweeper. Raises psycopg's errors, which a sweep ignores."""
        return OwnConnection.connect(self.database_url, session=sessions.SWEEP, pooler=self.settings.pooler)

    def close(self) -> None:
        if self._server is not None:
            self._server.release()
            self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def connect(url: str, pooler: str = "auto") -> OwnConnection:
    """Open a connection, or raise an error that says in one line why it failed."""
    try:
        return OwnConnection.connect(url, session=sessions.CLIENT, pooler=pooler, connect_timeout=CONNECT_TIMEOUT)
    except psycopg.ProgrammingError as error:
        why = why_unusable(url, _message(error))
        raise ConfigurationError(f"the database URL {masked(url)} cannot be used: {why}") from None
    except psycopg.OperationalError as error:
        cause = error if quotable(url, str(error)) == str(error) else None
        raise unreachable(url, error) from cause


def learn_server(connection: psycopg.Connection[Any]) -> bool:
    """Learn the server's time, and return whether the server accepts writes, which a standby does not.

    Runs are sorted and pruned by id, so ids are generated from the database's time if this machine's clock is far off.
    Holdfast's transactions are read-write regardless of role and database settings, so only a standby is read-only.
    """
    found = connection.execute(
        "select (extract(epoch from clock_timestamp()) * 1000000)::bigint, not pg_is_in_recovery()"
    ).fetchone()
    if found is None:
        return True
    ids.learn_time(found[0] * 1000)
    return bool(found[1])


def read_only(url: str) -> DatabaseReadOnly:
    """Return the error to raise for a server that accepts no writes."""
    return DatabaseReadOnly(f"Postgres at {masked(url)} {TAKES_NO_WRITES}. Point HOLDFAST_DATABASE_URL at the primary.")


def unreachable(url: str, error: BaseException) -> DatabaseUnreachable:
    """Return the error to raise for a failed connection, or for a server that cannot do this now."""
    if is_read_only(error):
        return read_only(url)
    if isinstance(error, psycopg.Error) and not is_lost(error):
        return DatabaseUnreachable(refused(url, error))
    message = quotable(url, _message(error))
    missing = _NO_DATABASE.search(message)
    if missing is not None:
        name = missing[1] or missing[2]
        return DatabaseUnreachable(
            f"the database {name!r} does not exist on the server at {masked(url)}. Create it (createdb {name}, or "
            f'create database "{name}") and run holdfast db upgrade, or correct HOLDFAST_DATABASE_URL.'
        )
    # Messages from the server contain FATAL: the server responded and rejected the connection.
    how = "rejected the connection" if "FATAL:" in message else "does not respond"
    return DatabaseUnreachable(
        f"Postgres at {masked(url)} {how}: {message}. Check HOLDFAST_DATABASE_URL and that the server is running."
    )


def refused(url: str, error: BaseException) -> str:
    """Return the message for a server that responds but cannot do this now."""
    why = " because of a conflict with another transaction" if fault_of(error) is Fault.BUSY else ""
    return f"Postgres at {masked(url)} cannot do this now{why}: {quotable(url, _message(error))}. Try again later."


def _message(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".?") or type(error).__name__


# The messages of libpq quote parts of the URL. If a password contains characters with a meaning in URLs, some of these
# parts belong to the password. Such messages are replaced.
ENCODE = "in a user name or password, write % as %25, @ as %40, / as %2F, # as %23, ? as %3F and a space as %20"


def why_unusable(url: str, message: str) -> str:
    """Return why libpq cannot parse this URL; `message` is libpq's."""
    if "://" not in url:
        return "it must be postgresql://user:password@host:port/name, or name=value pairs such as host=db dbname=name"
    if mask_address(url) == url:
        return message
    if re.search(r"%(?![0-9A-Fa-f]{2})", url):
        return f"it contains a % that is not part of an escape; {ENCODE}"
    if re.search(r"\s", url):
        return f"it contains a space; {ENCODE}"
    return f"its host, port or parameters are not valid; {ENCODE}"


def quotable(url: str, message: str) -> str:
    """Return the message of libpq or the server if no part of it can come from the password, or else a replacement."""
    try:
        known = conninfo_to_dict(url)
    except ProgrammingError:
        return why_unusable(url, message)
    password = str(known.get("password") or "")
    if "://" in url and not _is_read_as_written(url, password):
        return f"the URL is ambiguous; {ENCODE}"
    return message.replace(password, HIDDEN) if len(password) > 3 else message


def _is_read_as_written(url: str, password: str) -> bool:
    """Whether libpq uses the text before the last @ as the password."""
    if mask_address(url) == HIDDEN:
        return False
    user, at, _ = url.partition("://")[2].rpartition("@")
    _, colon, written = user.partition(":")
    if colon:
        return unquote(written) == password
    return not at or not re.search("[/?#@]", user)
