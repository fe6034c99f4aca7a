"""The API's access to Postgres: a pool that each process opens itself, and that fails fast while Postgres is away.

A request never waits for a database that is known to be unreachable. Once one request
has noticed the outage, all requests fail at once; after a short pause, one of them checks whether Postgres is back. So
during an outage callers get a quick 503, no thread is blocked, and requests succeed again without a restart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from holdfast.client.blocking import DatabaseClient
from holdfast.domain.errors import DatabaseUnreachable
from holdfast.domain.values import RunRecord
from holdfast.doorbells.bell import Bell, CoalescingBell
from holdfast.drivers import psycopg as driver
from holdfast.drivers import sessions
from holdfast.drivers.connections import REFUSED
from holdfast.drivers.faults import is_lost, is_read_only
from holdfast.drivers.psycopg import OwnConnection, ReadTimeout, fresh
from holdfast.drivers.sessions import Session
from holdfast.runtime.runtime import Runtime, learn_server, read_only, refused, unreachable
from holdfast.schema import grants, migrate
from holdfast.sql.statement import Op
from holdfast.verbs.caller import Caller

T = TypeVar("T")

TRIES = 3
PROBE_AGAIN = 0.5
BUSY_SECONDS = 10.0
CONNECT_SECONDS = 3


class DatabaseBusy(DatabaseUnreachable):
    """No connection became free, or the statement did not finish, within the time that a request may wait."""


class Database(DatabaseClient):
    """Every call of a client, on the pool of this process."""

    def __init__(self, runtime: Runtime, size: int) -> None:
        self.runtime = runtime
        self.settings = runtime.settings
        self.caller = Caller(self.settings)
        self.url = runtime.database_url
        self._arguments: dict[str, Any] = {
            "session": sessions.API,
            "pooler": self.settings.pooler,
            "connect_timeout": CONNECT_SECONDS,
        }
        # A short reconnect_timeout frees the slot of a failed attempt, so that the next request makes a new one.
        self.pool: ConnectionPool[OwnConnection] = ConnectionPool(
            self.url,
            min_size=0,
            max_size=size,
            connection_class=OwnConnection,
            kwargs=self._arguments,
            timeout=BUSY_SECONDS,
            reconnect_timeout=1.0,
            open=True,
            name="holdfast-api",
        )
        self._bell = self._open_bell()
        self._away_until = 0.0
        self._probing = threading.Lock()

    def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        """Run an operation. If its connection breaks and it is repeatable, run it again on another connection."""
        if self._away_until:
            self._probe()
        for left in reversed(range(TRIES if repeatable else 1)):
            try:
                with fresh(self.pool) as connection:
                    try:
                        return driver.transact(connection, make_op)
                    except psycopg.errors.InsufficientPrivilege as error:
                        raise grants.denied(connection, error, "api") from error
            except PoolTimeout as error:
                self._probe(force=True)
                raise DatabaseBusy(f"all {self.pool.max_size} connections were busy for {BUSY_SECONDS:g} s") from error
            except ReadTimeout as error:
                # Not repeated if the server responds: a statement that took too long once would do so again.
                self._probe(force=True)
                raise DatabaseBusy(str(error)) from error
            except REFUSED as error:
                if is_read_only(error):
                    raise read_only(self.url) from error
                if not is_lost(error):
                    raise DatabaseBusy(refused(self.url, error)) from error
                # Either the server was restarted and the pool's other connections are stale too, or the server is down.
                self._probe(force=True)
                self.pool.drain()
                if not left:
                    raise unreachable(self.url, error) from error
        raise AssertionError("unreachable")

    def check(self) -> None:
        """Raise unless Postgres responds and accepts writes, and its schema and the role's privileges are sufficient.

        Connects outside of the pool, which may be busy.
        """
        try:
            with self.connect() as connection:
                migrate.require(connection)
                if not learn_server(connection):
                    raise read_only(self.url)
                grants.require(connection, "api")
        except psycopg.OperationalError as error:
            raise unreachable(self.url, error) from error

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        self._bell.ring(hints, runs)

    def connect(self, session: Session = sessions.API) -> OwnConnection:
        """A connection outside of the pool, for a use that needs its own connection."""
        return OwnConnection.connect(self.url, **{**self._arguments, "session": session})

    def close(self) -> None:
        self._bell.close()
        self.pool.close()
        self.runtime.close()

    def _open_bell(self) -> Bell:
        """The configured doorbell; if it uses Postgres, one that no request waits for.

        With RQ a request waits, so that its message is in Redis when the client receives the response.
        """
        notifier = Notifier(partial(self.connect, sessions.API_BELL))
        bell = self.runtime.open_bell(notifier.ring, waiting=self.settings.doorbell == "rq")
        return notifier if isinstance(bell, CoalescingBell) else bell

    def _probe(self, *, force: bool = False) -> None:
        """Return if Postgres responds, else raise DatabaseUnreachable. At most one thread checks at a time."""
        if not force and monotonic() < self._away_until:
            raise _away()
        if not self._probing.acquire(blocking=False):
            if self._away_until:
                raise _away()
            return
        try:
            with self.connect() as connection:
                connection.execute("select 1")
        except psycopg.Error as error:
            self._away_until = monotonic() + PROBE_AGAIN
            raise unreachable(self.url, error) from error
        else:
            if self._away_until:
                self._away_until = 0.0
                self.pool.drain()
        finally:
            self._probing.release()


def _away() -> DatabaseUnreachable:
    return DatabaseUnreachable("Postgres is not responding; the request was not executed")


PAUSE = 0.05


class Notifier(Bell):
    """A bell that collects hints and sends them at most every `PAUSE` seconds; the first is sent at once."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None
        self._hints: set[str] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        with self._changed:
            waits = not self._hints
            self._hints.update(hints)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="holdfast-notify", daemon=True)
                self._thread.start()
            elif waits:
                self._changed.notify()

    ring_later = ring

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._hints or self._closing)
                hints, self._hints = self._hints, set()
                if not hints:
                    break
            self._notify(hints)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, PAUSE)
        self._disconnect()

    def _notify(self, hints: set[str]) -> None:
        """Send hints. One that cannot be sent is lost; then workers find the run at their next poll."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.execute(
                "select pg_notify('holdfast', hint) from unnest(%s::text[]) as hint", [list(hints)]
            )
        except psycopg.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
