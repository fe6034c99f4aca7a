"""The blocking client."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self, TypeVar

import psycopg
from psycopg_pool import PoolTimeout

from holdfast.client.borrowing import check_offered, driver_for
from holdfast.client.waiting import in_transaction, pauses, timed_out
from holdfast.domain.errors import ClientClosed
from holdfast.domain.records import ResultRecord
from holdfast.domain.values import RunRecord, Submitted
from holdfast.doorbells.bell import Bell
from holdfast.drivers import psycopg as driver
from holdfast.drivers import sessions
from holdfast.drivers.connections import REFUSED
from holdfast.drivers.faults import is_lost
from holdfast.drivers.pools import OwnPool
from holdfast.drivers.psycopg import OwnConnection, ReadTimeout, fresh
from holdfast.runtime.forking import PerProcess, require_process
from holdfast.runtime.runtime import CONNECT_TIMEOUT, Runtime, unreachable
from holdfast.runtime.settings import Settings
from holdfast.schema import grants
from holdfast.sql.statement import Op
from holdfast.verbs.caller import Caller
from holdfast.verbs.facades import DatabaseCalls
from holdfast.verbs.handles import Run
from holdfast.verbs.procedures import follow
from holdfast.verbs.subjects import run_id
from holdfast.verbs.submissions import Submitting, SubmittingMany, mute
from holdfast.verbs.verb import Verb

T = TypeVar("T")

TRIES = 3


class DatabaseClient(DatabaseCalls):
    """Executes verbs, with the connection and the doorbell of a subclass."""

    runtime: Runtime
    caller: Caller

    def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        """Run an operation on a connection."""
        raise NotImplementedError

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Notify workers that there may be work. This is only a hint: nothing is lost if no worker receives it."""
        raise NotImplementedError

    def execute(
        self, verb: Verb[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any], caller: Caller | None = None
    ) -> T:
        plan = verb.plan(caller or self.caller, *args, **kwargs)
        answer = self.perform(plan, verb.repeatable) if callable(plan) else follow(plan, self.perform, self.ring)
        if verb.rings is not None and (hints := verb.rings(answer)) is not None:
            self.ring(*hints)
        return answer

    def load_result(self, found: ResultRecord) -> bytes:
        return self.runtime.load_result(found)

    def wait(self, run: object, timeout: float | None = None) -> Run:
        for pause in pauses(timeout):
            time.sleep(pause)
            found = self.get(run)
            if found.status.final:
                return found
        raise timed_out(run_id(run), timeout, self.why(run)[0].detail)

    wait.__doc__ = DatabaseCalls.wait.__doc__


class _Links(NamedTuple):
    """What a client opens in each process that uses it."""

    pool: OwnPool
    bell: Bell


class Client(DatabaseClient):
    """Submits runs, waits for them and controls them. Settings come from the environment unless given."""

    def __init__(self, settings: Settings | None = None, *, max_connections: int = 8) -> None:
        self.runtime = Runtime(settings)
        self.settings = self.runtime.settings
        self.caller = Caller(self.settings)
        self._max_connections = max_connections
        self._links = PerProcess(self._open_links)
        self.closed = False

    def _open_links(self) -> _Links:
        self.runtime.enter_process()
        pool = OwnPool(
            self.runtime.database_url,
            min_size=0,
            max_size=self._max_connections,
            connection_class=OwnConnection,
            kwargs={"session": sessions.CLIENT, "pooler": self.settings.pooler, "connect_timeout": CONNECT_TIMEOUT},
            timeout=CONNECT_TIMEOUT,
            open=True,
            name="holdfast",
        )
        # The threads of the pool do not delay the exit of a program that does not close its client.
        weakref.finalize(self, pool.close)
        return _Links(pool, self.runtime.open_bell(self._notify))

    def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        """Run an operation on a connection from the pool, and retry it if the connection is lost.

        A submit is also repeated, without its notification, if the server's notification queue is full: Postgres queues
        the notification at the commit, so a full queue rolls back the whole submit.
        """
        if self.closed:
            raise ClientClosed("Client")
        links = self._links
        pool, bell = links.current if links.pid == os.getpid() else links.get()
        if isinstance(make_op, Submitting):
            make_op.rings = bell.may_send_inline(make_op.head.queue)
        for left in reversed(range(TRIES if repeatable else 1)):
            try:
                with fresh(pool) as connection:
                    try:
                        answer = driver.transact(connection, make_op)
                        if isinstance(answer, Submitted) and answer.rung:
                            bell.note_sent(answer.run.queue)
                        return answer
                    except psycopg.errors.InsufficientPrivilege as error:
                        raise grants.denied(connection, error) from error
            except (*REFUSED, PoolTimeout) as error:
                if left and isinstance(error, psycopg.errors.ProgramLimitExceeded) and mute(make_op):
                    bell.suspend_inline()
                elif left and is_lost(error) and not isinstance(error, PoolTimeout | ReadTimeout):
                    pool.drain()
                else:
                    raise unreachable(self.runtime.database_url, error) from error
        raise AssertionError("unreachable")

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        self._links.get().bell.ring(hints, runs)

    def ring_later(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Ring soon, repeatedly: the caller has not committed yet."""
        self._links.get().bell.ring_later(hints, runs)

    def _notify(self, hints: Iterable[str]) -> None:
        with fresh(self._links.get().pool) as connection:
            for hint in hints:
                connection.execute("select pg_notify('holdfast', %s)", [hint])

    def on(self, connection: Any) -> BorrowedClient:
        """The same calls on your connection and in your transaction.

        It is a connection of psycopg, SQLAlchemy or Django, or a SQLAlchemy session.
        """
        return BorrowedClient(self, connection)

    def close(self) -> None:
        self.closed = True
        links = self._links.opened()
        if links is None:
            return
        links.bell.close()
        links.pool.close()
        self.runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class BorrowedClient(DatabaseClient):
    """A client on the caller's connection: its changes take effect if and only if the caller's transaction commits.

    On an autocommit connection outside a transaction, each call is its own transaction.
    """

    borrowed = True

    def __init__(self, owner: Client, connection: Any) -> None:
        self.runtime = owner.runtime
        self.settings = owner.settings
        self.caller = owner.caller
        self._owner = owner
        self._connection = connection
        self._drive = driver_for(connection)
        self._pid = os.getpid()

    def wait(self, run: object, timeout: float | None = None) -> Run:
        """Refused: no worker can execute the run before the transaction that it is part of has committed."""
        raise in_transaction(f"run {run_id(run)}")

    def execute(
        self, verb: Verb[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any], caller: Caller | None = None
    ) -> T:
        check_offered(verb)
        return super().execute(verb, args, kwargs, caller)

    def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        if self._owner.closed:
            raise ClientClosed("Client")
        require_process(
            self._pid, "this client on your connection", "open a connection after the fork and pass it to on()"
        )
        if isinstance(make_op, SubmittingMany):
            make_op.at_once()
        try:
            result: T = self._drive(self._connection, make_op())
        except psycopg.errors.InsufficientPrivilege as error:
            raise grants.denied(self._connection, error) from error
        return result

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        # The caller may commit at any time, so the bell rings a little later, more than once.
        self._owner.ring_later(hints, runs)
