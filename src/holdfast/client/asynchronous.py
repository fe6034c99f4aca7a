"""The asynchronous client: the same calls, awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import orjson
import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from holdfast.client import calls
from holdfast.client import subscriptions as subscribing
from holdfast.client.blocking import TRIES
from holdfast.client.borrowing import async_driver_for, check_offered
from holdfast.client.calls import run_id
from holdfast.client.handles import AsyncRun
from holdfast.client.methods import signed
from holdfast.client.waiting import in_transaction, pauses, timed_out
from holdfast.domain.errors import ClientClosed
from holdfast.domain.records import Page, ResultRecord
from holdfast.domain.values import RunRecord, Submitted
from holdfast.drivers import psycopg_async as driver
from holdfast.drivers import sessions
from holdfast.drivers.faults import is_lost
from holdfast.drivers.read_timeout import ReadTimeout
from holdfast.drivers.sessions import AsyncOwnConnection
from holdfast.runtime.forking import require_process
from holdfast.runtime.pools import REFUSED, fresh_async
from holdfast.runtime.runtime import CONNECT_TIMEOUT, Runtime, unreachable
from holdfast.runtime.settings import Settings
from holdfast.schema import grants
from holdfast.sql.statement import Op

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def awaiting(
    call: Callable[Concatenate[Settings, P], Op[T]],
    wrap: Callable[[AsyncAsking, T], R],
    *,
    repeatable: bool = True,
) -> Callable[Concatenate[AsyncAsking, P], Awaitable[R]]:
    """A method that performs a call. A `repeatable` one is asked again if the connection broke on the way."""

    async def method(self: AsyncAsking, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self, await self.perform(partial(call, self.settings, *args, **kwargs), repeatable))

    return signed(method, call, wrap)


def awaiting_once(
    prepare: Callable[Concatenate[Settings, P], Callable[[], Op[T]]], wrap: Callable[[AsyncAsking, T], R]
) -> Callable[Concatenate[AsyncAsking, P], Awaitable[R]]:
    """A method that prepares a call once, and performs it as often as it takes."""

    async def method(self: AsyncAsking, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self, await self.perform(prepare(self.settings, *args, **kwargs)))

    return signed(method, prepare, wrap)


def _as_is(asking: AsyncAsking, value: T) -> T:
    return value


def _run(asking: AsyncAsking, record: RunRecord) -> AsyncRun:
    return AsyncRun(asking, record)


def _runs(asking: AsyncAsking, records: Page[RunRecord]) -> Page[AsyncRun]:
    return Page((AsyncRun(asking, record) for record in records), records.next_cursor)


def _submitted(asking: AsyncAsking, answer: Submitted) -> AsyncRun:
    if answer.created and not answer.rung:
        asking.ring([answer.run.queue], [answer.run])
    return AsyncRun(asking, answer.run, answer.created)


def _submitted_many(asking: AsyncAsking, answers: list[Submitted]) -> list[AsyncRun]:
    made = [answer.run for answer in answers if answer.created]
    asking.ring({run.queue for run in made}, made)
    return [AsyncRun(asking, answer.run, answer.created) for answer in answers]


def _stopped(asking: AsyncAsking, record: RunRecord) -> AsyncRun:
    if record.lease_owner:
        asking.ring([f"stop:{record.lease_owner}"])
    return AsyncRun(asking, record)


def _reopened(asking: AsyncAsking, record: RunRecord) -> AsyncRun:
    asking.ring([record.queue], [record])
    return AsyncRun(asking, record)


class AsyncAsking:
    """Everything that can be asked, whatever connection carries it."""

    settings: Settings
    runtime: Runtime
    borrowed = False
    """Whether the connection and its transaction belong to the caller."""

    async def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        raise TypeError("only an AsyncClient, or what its on() returns, has a connection to perform on")

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        raise TypeError("only an AsyncClient, or what its on() returns, has a bell")

    submit = awaiting_once(calls.submit, _submitted)
    submit_many = awaiting_once(calls.submit_many, _submitted_many)
    get = awaiting(calls.get, _run)
    list = awaiting(calls.list_runs, _runs)
    result_record = awaiting(calls.result, _as_is)
    cancel = awaiting(calls.cancel, _stopped)
    retry = awaiting(calls.retry, _reopened, repeatable=False)
    events = awaiting(calls.events, _as_is)
    attempts = awaiting(calls.attempts, _as_is)
    why = awaiting(calls.why, _as_is)
    workers = awaiting(calls.workers, _as_is)
    drain_worker = awaiting(calls.drain_worker, _as_is)
    queues = awaiting(calls.queues, _as_is)
    pause_queue = awaiting(calls.pause_queue, _as_is)
    resume_queue = awaiting(calls.resume_queue, _as_is)
    totals = awaiting(calls.totals, _as_is)
    subscriptions = awaiting(subscribing.subscriptions, _as_is)
    add_subscription = awaiting(subscribing.add_subscription, _as_is, repeatable=False)
    remove_subscription = awaiting(subscribing.remove_subscription, _as_is)
    pause_subscription = awaiting(subscribing.pause_subscription, _as_is)
    resume_subscription = awaiting(subscribing.resume_subscription, _as_is)
    rotate_secret = awaiting(subscribing.rotate_secret, _as_is, repeatable=False)
    deliveries = awaiting(subscribing.deliveries, _as_is)
    redeliver = awaiting(subscribing.redeliver, _as_is)

    async def result(self, run: object) -> Any:
        """What the task returned. Raises RunNotFinished, RunFailed or RunCancelled if there is no result."""
        found: ResultRecord = await self.result_record(run)
        return orjson.loads(await asyncio.to_thread(self.runtime.load_result, found))

    async def wait(self, run: object, timeout: float | None = None) -> AsyncRun:
        """Return the run once it has ended, however it ended; raises WaitTimeout after `timeout` seconds."""
        found = await self.get(run)
        for pause in pauses(timeout):
            if found.status.final:
                return found
            await asyncio.sleep(pause)
            found = await self.get(run)
        if found.status.final:
            return found
        reasons = await self.why(run)
        raise timed_out(run_id(run), timeout, reasons[0].detail)


class AsyncClient(AsyncAsking):
    """Submits runs, waits for them and steers them, for code that awaits. Use it as `async with AsyncClient()`."""

    def __init__(self, settings: Settings | None = None, *, max_connections: int = 8) -> None:
        self.runtime = Runtime(settings)
        self.settings = self.runtime.settings
        self._max_connections = max_connections
        self._closed = False
        self._prepare()

    def _prepare(self) -> None:
        self._pid = os.getpid()
        self._pool: AsyncConnectionPool[AsyncOwnConnection] = AsyncConnectionPool(
            self.runtime.database_url,
            min_size=0,
            max_size=self._max_connections,
            connection_class=AsyncOwnConnection,
            kwargs={
                "session": sessions.CLIENT,
                "pooler": self.settings.pooler,
                "connect_timeout": CONNECT_TIMEOUT,
            },
            timeout=CONNECT_TIMEOUT,
            open=False,
            name="holdfast-async",
        )
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ringing: set[asyncio.Task[None]] = set()
        self._bell = self.runtime.open_bell(self._send, waiting=False)

    async def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        """Drive an operation on a connection of the pool."""
        self._require_process()
        if isinstance(make_op, calls.Submitting) and self._bell.rides(make_op.head.queue):
            make_op.ring()
        await self.open()
        for left in reversed(range(TRIES if repeatable else 1)):
            try:
                async with fresh_async(self._pool) as connection:
                    return await self._transact(connection, make_op)
            except (*REFUSED, PoolTimeout) as error:
                if not left or isinstance(error, PoolTimeout | ReadTimeout) or not is_lost(error):
                    raise unreachable(self.runtime.database_url, error) from error
                await self._pool.drain()
        raise AssertionError("unreachable")

    async def open(self) -> None:
        """Open the pool, once, in the running loop; it connects at the first call. Raise ClientClosed."""
        if self._closed:
            raise ClientClosed("AsyncClient")
        self._require_process()
        async with self._opening:
            if self._pool.closed:
                self._loop = asyncio.get_running_loop()
                await self._pool.open()

    def _require_process(self) -> None:
        """Raise ConfigurationError in a fork of the process that used this client."""
        if self._pid == os.getpid():
            return
        if self._loop is not None:
            require_process(self._pid, "this AsyncClient", "create another AsyncClient after the fork")
        self.runtime.enter_process()
        self._prepare()

    async def _transact(self, connection: psycopg.AsyncConnection[Any], make_op: Callable[[], Op[T]]) -> T:
        """Run an operation. If the server's notification queue is full, a submit is repeated without a notification.

        Postgres queues the notification at the commit, so a full queue rolls back the whole submit.
        """
        try:
            return await driver.transact(connection, make_op)
        except psycopg.errors.ProgramLimitExceeded:
            if not calls.mute(make_op):
                raise
            self._bell.suspend_riding()
            return await driver.transact(connection, make_op)
        except psycopg.errors.InsufficientPrivilege as error:
            raise grants.denied(connection, error) from error

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Tell workers that there may be something to do. Only a hint: nothing is lost if nobody hears it."""
        self._bell.ring(hints, runs)

    def ring_later(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Tell workers soon, and again: somebody else will commit what it is about."""
        self._bell.ring_later(hints, runs)

    def _send(self, hints: Iterable[str]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._spawn, list(hints))

    def _spawn(self, hints: list[str]) -> None:
        task = asyncio.get_running_loop().create_task(self._notify(hints))
        self._ringing.add(task)
        task.add_done_callback(self._ringing.discard)

    async def _notify(self, hints: list[str]) -> None:
        with suppress(psycopg.Error, PoolTimeout):
            async with fresh_async(self._pool) as connection:
                for hint in hints:
                    await connection.execute("select pg_notify('holdfast', %s)", [hint])

    def on(self, connection: Any) -> AsyncBorrowedClient:
        """The same calls on your connection and in your transaction.

        It is psycopg's AsyncConnection, or SQLAlchemy's AsyncConnection or AsyncSession over psycopg or asyncpg.
        """
        return AsyncBorrowedClient(self, connection)

    async def close(self) -> None:
        self._closed = True
        if self._pid != os.getpid():
            return
        await asyncio.to_thread(self._bell.close)
        await asyncio.gather(*self._ringing)
        await self._pool.close()
        self.runtime.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncBorrowedClient(AsyncAsking):
    """A client on the caller's connection: its changes take effect if and only if the caller's transaction commits.

    On an autocommit connection outside a transaction, each call is its own transaction.
    """

    borrowed = True

    def __init__(self, owner: AsyncClient, connection: Any) -> None:
        self.runtime = owner.runtime
        self.settings = owner.settings
        self._owner = owner
        self._connection = connection
        self._drive = async_driver_for(connection)
        self._pid = os.getpid()

    async def wait(self, run: object, timeout: float | None = None) -> AsyncRun:
        """Refused: nobody can execute the run before the transaction that it is part of has committed."""
        raise in_transaction(f"run {run_id(run)}")

    async def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        require_process(
            self._pid, "this client on your connection", "open a connection after the fork and pass it to on()"
        )
        check_offered(make_op)
        if isinstance(make_op, calls.SubmittingMany):
            make_op.at_once()
        await self._owner.open()
        result: T = await self._drive(self._connection, make_op())
        return result

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        self._owner.ring_later(hints, runs)
