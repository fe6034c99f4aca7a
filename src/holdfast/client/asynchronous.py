"""The asynchronous client: the same calls, awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from holdfast.client.blocking import TRIES, Client
from holdfast.client.borrowing import async_driver_for, check_offered
from holdfast.client.shared import client_for
from holdfast.client.waiting import in_transaction, pauses, timed_out
from holdfast.domain.errors import ClientClosed
from holdfast.domain.records import ResultRecord
from holdfast.domain.values import RunRecord, Submitted
from holdfast.drivers import psycopg_async as driver
from holdfast.drivers import sessions
from holdfast.drivers.connections import REFUSED
from holdfast.drivers.faults import is_lost
from holdfast.drivers.psycopg import ReadTimeout
from holdfast.drivers.psycopg_async import AsyncOwnConnection, fresh_async
from holdfast.runtime.forking import require_process
from holdfast.runtime.runtime import CONNECT_TIMEOUT, Runtime, unreachable
from holdfast.runtime.settings import Settings
from holdfast.schema import grants
from holdfast.sql.statement import Op
from holdfast.verbs.caller import Caller
from holdfast.verbs.facades import AsyncDatabaseCalls
from holdfast.verbs.handles import AsyncRun
from holdfast.verbs.procedures import follow_async
from holdfast.verbs.subjects import run_id
from holdfast.verbs.submissions import Submitting, SubmittingMany, mute
from holdfast.verbs.verb import Verb

T = TypeVar("T")


class AsyncDatabaseClient(AsyncDatabaseCalls):
    """Executes verbs, with the connection and the doorbell of a subclass."""

    runtime: Runtime
    caller: Caller

    async def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        """Run an operation on a connection."""
        raise NotImplementedError

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Notify workers that there may be work. This is only a hint: nothing is lost if no worker receives it."""
        raise NotImplementedError

    async def execute(self, verb: Verb[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
        plan = verb.plan(self.caller, *args, **kwargs)
        if callable(plan):
            answer = await self.perform(plan, verb.repeatable)
        else:
            answer = await follow_async(plan, self.perform, self.ring)
        if verb.rings is not None and (hints := verb.rings(answer)) is not None:
            self.ring(*hints)
        return answer

    def load_result(self, found: ResultRecord) -> bytes:
        return self.runtime.load_result(found)

    def blocking_client(self) -> Client:
        return client_for(self.settings, self.runtime.database_url)

    async def wait(self, run: object, timeout: float | None = None) -> AsyncRun:
        for pause in pauses(timeout):
            await asyncio.sleep(pause)
            found = await self.get(run)
            if found.status.final:
                return found
        reasons = await self.why(run)
        raise timed_out(run_id(run), timeout, reasons[0].detail)

    wait.__doc__ = AsyncDatabaseCalls.wait.__doc__


class AsyncClient(AsyncDatabaseClient):
    """Submits runs, waits for them and controls them, for code that awaits. Use it as `async with AsyncClient()`."""

    def __init__(self, settings: Settings | None = None, *, max_connections: int = 8) -> None:
        self.runtime = Runtime(settings)
        self.settings = self.runtime.settings
        self.caller = Caller(self.settings)
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
            kwargs={"session": sessions.CLIENT, "pooler": self.settings.pooler, "connect_timeout": CONNECT_TIMEOUT},
            timeout=CONNECT_TIMEOUT,
            open=False,
            name="holdfast-async",
        )
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ringing: set[asyncio.Task[None]] = set()
        self._bell = self.runtime.open_bell(self._send, waiting=False)

    async def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        """Run an operation on a connection from the pool, and retry it if the connection is lost.

        A submit is also repeated, without its notification, if the server's notification queue is full.
        """
        await self.open()
        if isinstance(make_op, Submitting):
            make_op.rings = self._bell.may_send_inline(make_op.head.queue)
        for left in reversed(range(TRIES if repeatable else 1)):
            try:
                async with fresh_async(self._pool) as connection:
                    try:
                        answer = await driver.transact(connection, make_op)
                        if isinstance(answer, Submitted) and answer.rung:
                            self._bell.note_sent(answer.run.queue)
                        return answer
                    except psycopg.errors.InsufficientPrivilege as error:
                        raise grants.denied(connection, error) from error
            except (*REFUSED, PoolTimeout) as error:
                if left and isinstance(error, psycopg.errors.ProgramLimitExceeded) and mute(make_op):
                    self._bell.suspend_inline()
                elif left and is_lost(error) and not isinstance(error, PoolTimeout | ReadTimeout):
                    await self._pool.drain()
                else:
                    raise unreachable(self.runtime.database_url, error) from error
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

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        self._bell.ring(hints, runs)

    def ring_later(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Ring soon, repeatedly: the caller has not committed yet."""
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

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class AsyncBorrowedClient(AsyncDatabaseClient):
    """A client on the caller's connection: its changes take effect if and only if the caller's transaction commits.

    On an autocommit connection outside a transaction, each call is its own transaction.
    """

    borrowed = True

    def __init__(self, owner: AsyncClient, connection: Any) -> None:
        self.runtime = owner.runtime
        self.settings = owner.settings
        self.caller = owner.caller
        self._owner = owner
        self._connection = connection
        self._drive = async_driver_for(connection)
        self._pid = os.getpid()

    async def wait(self, run: object, timeout: float | None = None) -> AsyncRun:
        """Refused: no worker can execute the run before the transaction that it is part of has committed."""
        raise in_transaction(f"run {run_id(run)}")

    async def execute(self, verb: Verb[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
        check_offered(verb)
        return await super().execute(verb, args, kwargs)

    async def perform(self, make_op: Callable[[], Op[T]], repeatable: bool = True) -> T:
        require_process(
            self._pid, "this client on your connection", "open a connection after the fork and pass it to on()"
        )
        if isinstance(make_op, SubmittingMany):
            make_op.at_once()
        await self._owner.open()
        try:
            result: T = await self._drive(self._connection, make_op())
        except psycopg.errors.InsufficientPrivilege as error:
            raise grants.denied(self._connection, error) from error
        return result

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        self._owner.ring_later(hints, runs)
