"""The blocking client."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import orjson
import psycopg
from psycopg_pool import PoolTimeout

from holdfast.client import calls
from holdfast.client import subscriptions as subscribing
from holdfast.client.borrowing import check_offered, driver_for
from holdfast.client.calls import run_id
from holdfast.client.handles import Run
from holdfast.client.methods import signed
from holdfast.client.waiting import in_transaction, pauses, timed_out
from holdfast.domain.errors import ClientClosed
from holdfast.domain.records import Page, ResultRecord
from holdfast.domain.values import RunRecord, Submitted
from holdfast.doorbells.bell import Bell
from holdfast.drivers import psycopg as driver
from holdfast.drivers import sessions
from holdfast.drivers.faults import is_lost
from holdfast.drivers.read_timeout import ReadTimeout
from holdfast.drivers.sessions import OwnConnection
from holdfast.runtime.forking import PerProcess, require_process
from holdfast.runtime.pools import REFUSED, OwnPool, fresh
from holdfast.runtime.runtime import CONNECT_TIMEOUT, Runtime, unreachable
from holdfast.runtime.settings import Settings
from holdfast.schema import grants
from holdfast.sql.statement import Op

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

TRIES = 3


def blocking(
    call: Callable[Concatenate[Settings, P], Op[T]],
    wrap: Callable[[Asking, T], R],
    *,
    repeatable: bool = True,
) -> Callable[Concatenate[Asking, P], R]:
    """A method that performs a call. A `repeatable` one is asked again if the connection broke on the way."""

    def method(self: Asking, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self, self.perform(partial(call, self.settings, *args, **kwargs), repeatable))

    return signed(method, call, wrap)


def blocking_once(
    prepare: Callable[Concatenate[Settings, P], Callable[[], Op[T]]], wrap: Callable[[Asking, T], R]
) -> Callable[Concatenate[Asking, P], R]:
    """A method that prepares a call once, and performs it as often as it takes."""

    def method(self: Asking, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self, self.perform(prepare(self.settings, *args, **kwargs)))

    return signed(method, prepare, wrap)


def _as_is(asking: Asking, value: T) -> T:
    return value


def _run(asking: Asking, record: RunRecord) -> Run:
    return Run(asking, record)


def _runs(asking: Asking, records: Page[RunRecord]) -> Page[Run]:
    return Page((Run(asking, record) for record in records), records.next_cursor)


def _submitted(asking: Asking, answer: Submitted) -> Run:
    if answer.created and not answer.rung:
        asking.ring([answer.run.queue], [answer.run])
    return Run(asking, answer.run, answer.created)


def _submitted_many(asking: Asking, answers: list[Submitted]) -> list[Run]:
    made = [answer.run for answer in answers if answer.created]
    asking.ring({run.queue for run in made}, made)
    return [Run(asking, answer.run, answer.created) for answer in answers]


def _stopped(asking: Asking, record: RunRecord) -> Run:
    if record.lease_owner:
        asking.ring([f"stop:{record.lease_owner}"])
    return Run(asking, record)


def _reopened(asking: Asking, record: RunRecord) -> Run:
    asking.ring([record.queue], [record])
    return Run(asking, record)


def _value(asking: Asking, found: ResultRecord) -> Any:
    return orjson.loads(asking.runtime.load_result(found))


class Asking:
    """Everything that can be asked, whatever connection carries it."""

    settings: Settings
    runtime: Runtime
    borrowed = False
    """Whether the connection and its transaction belong to the caller."""

    def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        raise TypeError("only a Client, or what its on() returns, has a connection to perform on")

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        raise TypeError("only a Client, or what its on() returns, has a bell")

    submit = blocking_once(calls.submit, _submitted)
    submit_many = blocking_once(calls.submit_many, _submitted_many)
    get = blocking(calls.get, _run)
    list = blocking(calls.list_runs, _runs)
    result = blocking(calls.result, _value)
    cancel = blocking(calls.cancel, _stopped)
    retry = blocking(calls.retry, _reopened, repeatable=False)
    events = blocking(calls.events, _as_is)
    attempts = blocking(calls.attempts, _as_is)
    why = blocking(calls.why, _as_is)
    workers = blocking(calls.workers, _as_is)
    drain_worker = blocking(calls.drain_worker, _as_is)
    queues = blocking(calls.queues, _as_is)
    pause_queue = blocking(calls.pause_queue, _as_is)
    resume_queue = blocking(calls.resume_queue, _as_is)
    totals = blocking(calls.totals, _as_is)
    subscriptions = blocking(subscribing.subscriptions, _as_is)
    add_subscription = blocking(subscribing.add_subscription, _as_is, repeatable=False)
    remove_subscription = blocking(subscribing.remove_subscription, _as_is)
    pause_subscription = blocking(subscribing.pause_subscription, _as_is)
    resume_subscription = blocking(subscribing.resume_subscription, _as_is)
    rotate_secret = blocking(subscribing.rotate_secret, _as_is, repeatable=False)
    deliveries = blocking(subscribing.deliveries, _as_is)
    redeliver = blocking(subscribing.redeliver, _as_is)

    def wait(self, run: object, timeout: float | None = None) -> Run:
        """Return the run once it has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
        found = self.get(run)
        for pause in pauses(timeout):
            if found.status.final:
                return found
            time.sleep(pause)
            found = self.get(run)
        if found.status.final:
            return found
        raise timed_out(run_id(run), timeout, self.why(run)[0].detail)


class _Links(NamedTuple):
    """What a client opens in each process that uses it."""

    pool: OwnPool
    bell: Bell


class Client(Asking):
    """Submits runs, waits for them and steers them. Settings come from the environment unless given."""

    def __init__(self, settings: Settings | None = None, *, max_connections: int = 8) -> None:
        self.runtime = Runtime(settings)
        self.settings = self.runtime.settings
        self._max_connections = max_connections
        self._links = PerProcess(self._open_links)
        self._closed = False

    def _open_links(self) -> _Links:
        self.runtime.enter_process()
        pool = OwnPool(
            self.runtime.database_url,
            min_size=0,
            max_size=self._max_connections,
            connection_class=OwnConnection,
            kwargs={
                "session": sessions.CLIENT,
                "pooler": self.settings.pooler,
                "connect_timeout": CONNECT_TIMEOUT,
            },
            timeout=CONNECT_TIMEOUT,
            open=True,
            name="holdfast",
        )
        # A program that ends without closing its client is not held up by the threads of the pool.
        weakref.finalize(self, pool.close)
        return _Links(pool, self.runtime.open_bell(self._notify))

    def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        """Drive an operation on a connection of the pool."""
        self.require_open()
        pool, bell = self._links.get()
        if isinstance(make_op, calls.Submitting) and bell.rides(make_op.head.queue):
            make_op.ring()
        for left in reversed(range(TRIES if repeatable else 1)):
            try:
                with fresh(pool) as connection:
                    return self._transact(connection, make_op)
            except (*REFUSED, PoolTimeout) as error:
                if not left or isinstance(error, PoolTimeout | ReadTimeout) or not is_lost(error):
                    raise unreachable(self.runtime.database_url, error) from error
                pool.drain()
        raise AssertionError("unreachable")

    def _transact(self, connection: psycopg.Connection[Any], make_op: Callable[[], Op[T]]) -> T:
        """Run an operation. If the server's notification queue is full, a submit is repeated without a notification.

        Postgres queues the notification at the commit, so a full queue rolls back the whole submit.
        """
        try:
            return driver.transact(connection, make_op)
        except psycopg.errors.ProgramLimitExceeded:
            if not calls.mute(make_op):
                raise
            self._links.get().bell.suspend_riding()
            return driver.transact(connection, make_op)
        except psycopg.errors.InsufficientPrivilege as error:
            raise grants.denied(connection, error) from error

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Tell workers that there may be something to do. Only a hint: nothing is lost if nobody hears it."""
        self._links.get().bell.ring(hints, runs)

    def ring_later(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Tell workers soon, and again: somebody else will commit what it is about."""
        self._links.get().bell.ring_later(hints, runs)

    def _notify(self, hints: Iterable[str]) -> None:
        with fresh(self._links.get().pool) as connection:
            for hint in hints:
                connection.execute("select pg_notify('holdfast', %s)", [hint])

    def on(self, connection: Any) -> BorrowedClient:
        """The same calls on your connection and in your transaction: psycopg, or SQLAlchemy's connection or session."""
        return BorrowedClient(self, connection)

    def require_open(self) -> None:
        """Raise ClientClosed if this client is closed."""
        if self._closed:
            raise ClientClosed("Client")

    def close(self) -> None:
        self._closed = True
        links = self._links.opened()
        if links is None:
            return
        links.bell.close()
        links.pool.close()
        self.runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BorrowedClient(Asking):
    """A client on the caller's connection: its changes take effect if and only if the caller's transaction commits.

    On an autocommit connection outside a transaction, each call is its own transaction.
    """

    borrowed = True

    def __init__(self, owner: Client, connection: Any) -> None:
        self.runtime = owner.runtime
        self.settings = owner.settings
        self._owner = owner
        self._connection = connection
        self._drive = driver_for(connection)
        self._pid = os.getpid()

    def wait(self, run: object, timeout: float | None = None) -> Run:
        """Refused: nobody can execute the run before the transaction that it is part of has committed."""
        raise in_transaction(f"run {run_id(run)}")

    def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        self._owner.require_open()
        require_process(
            self._pid, "this client on your connection", "open a connection after the fork and pass it to on()"
        )
        check_offered(make_op)
        if isinstance(make_op, calls.SubmittingMany):
            make_op.at_once()
        result: T = self._drive(self._connection, make_op())
        return result

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        # The commit is the caller's and may come at any time, so the bell is rung a little later, more than once.
        self._owner.ring_later(hints, runs)
