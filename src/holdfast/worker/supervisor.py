"""The supervisor: the life of a worker, from its registration until it has released everything."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from importlib import metadata
from time import monotonic

import psycopg

from holdfast.domain.doorbell import HANDED, STOP
from holdfast.domain.errors import DatabaseReadOnly, DatabaseUnreachable, HoldfastError
from holdfast.domain.execution import Executor, ExecutorContext
from holdfast.domain.reasons import CANCEL
from holdfast.domain.tasks import load_modules
from holdfast.domain.values import Renewal
from holdfast.observe import emit
from holdfast.processes.family import loop_signals
from holdfast.sql import leases, workers
from holdfast.sql.statement import Op
from holdfast.worker.database import Busy, Database, ReadOnly, Unavailable, said
from holdfast.worker.exchange import Exchange
from holdfast.worker.options import WorkerOptions
from holdfast.worker.remote_attempts import DatabaseRemoteAttempts
from holdfast.worker.renewal import RenewalThread
from holdfast.worker.session import WorkerSession
from holdfast.worker.upkeep import Upkeep

TRANSACTIONS = "holdfast.worker.transactions:open_transaction"
WATCH_EVERY = 0.5
LEAVE_WITHIN = 5.0
HUNG_FOR = 1.0
AWAY_PAUSE = 0.5
SETTLE_PAUSE = 0.2


class Worker:
    """Claims and performs runs until it is stopped.

    `run()` blocks and handles signals; `serve()` and `stop()` do the same inside a running loop.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self._stopping = False
        self._serving = False
        self._hurrying = False
        self._renewal: RenewalThread | None = None
        self._fenced: str | None = None
        self._look_for_stops = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._away: dict[str, str | None] = {}
        self._noting: asyncio.Task[None] | None = None

    def run(self, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        """Work until SIGTERM or SIGINT; a second signal stops at once. With `until_empty`, until no run is left."""
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        with loop_signals(self.stop):
            await self.serve()

    def stop(self, *, now: bool = False) -> None:
        """Claim nothing more, let runs finish within the grace, hand back the rest; with `now`, at once."""
        self._hurrying = self._hurrying or self._stopping or now
        self._stopping = True
        if self._serving:
            self._exchange.stop()
            if self._hurrying:
                self._exchange.hurry()
            if self._renewal is None and not self._database.connected:
                self._database.cut()
            # A database that does not answer holds up the worker for no longer than its runs may take.
            for database in (self._database, self._second):
                asyncio.get_running_loop().call_later(self.options.limits.grace, database.cut, HUNG_FOR)

    @property
    def id(self) -> str:
        """The id under which this worker holds its leases. It changes when the worker was fenced."""
        return self._exchange.session.id

    @property
    def registered(self) -> bool:
        """Whether this worker has a session in which it may hold runs."""
        return self._renewal is not None and not self._exchange.session.over

    @property
    def draining(self) -> bool:
        """Whether this worker has stopped claiming runs."""
        return self._stopping

    @property
    def refusal(self) -> str | None:
        """Why Postgres refused the last round trip, for instance a missing privilege; None if it succeeded."""
        return self._exchange.refusal if self._serving else None

    @property
    def held(self) -> int:
        """How many runs this worker holds."""
        return len(self._exchange.session.held) if self._serving else 0

    def answers(self, seconds: float) -> bool:
        """Whether the event loop responds, as seen from another thread."""
        loop = self._loop
        if loop is None:
            return True  # it has not started yet
        responded = threading.Event()
        _later(loop, responded.set)
        return responded.wait(seconds)

    @property
    def executors(self) -> list[Executor]:
        return list(self.options.executors.values())

    async def serve(self) -> None:
        """Work until stopped. Raise DatabaseUnreachable if the database does not respond at the start."""
        load_modules(self.options.task_modules)
        self._loop = asyncio.get_running_loop()
        self._database = Database(self.options.database_url, "worker", moving=True, pooler=self.options.pooler)
        self._second = Database(self.options.database_url, "worker", moving=True, pooler=self.options.pooler)
        self._upkeep = Upkeep(self.options)
        self._exchange = Exchange(self.options, self._database, self._second, self._upkeep)
        self._upkeep.look_soon = self._exchange.look_soon
        self._serving = True
        if self._stopping:
            self._exchange.stop()
        if self._hurrying:
            self._exchange.hurry()
        await self._register(waiting=self.options.wait_for_database)
        if self._renewal is None:  # stopped while the database did not answer: there is nothing to release
            await self._close_connections()
            return
        helpers = []
        try:
            for name, executor in self.options.executors.items():
                await executor.open(self._executor_context(name))
            await self._begin()
            helpers = [
                asyncio.create_task(self._after_quiet_start(self._listen)),
                asyncio.create_task(self._after_quiet_start(self._upkeep.serve)),
                asyncio.create_task(self._watch()),
            ]
            for helper in helpers:
                helper.add_done_callback(self._helper_ended)
            await self._exchange.serve()
            while self._exchange.session.over:
                await self._start_over()
                if self._stopping:
                    break
                await self._exchange.serve()
            await self._exchange.drain(self.options.limits.grace)
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await self._leave()

    async def _after_quiet_start(self, serve: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(self.options.quiet_start)
        await serve()

    async def _listen(self) -> None:
        await self.options.listener.listen(self._receive_hints)

    def _helper_ended(self, helper: asyncio.Task[None]) -> None:
        """Stop the worker if the listener, the upkeep or the watch failed: it cannot work without them."""
        if not helper.cancelled() and (error := helper.exception()) is not None:
            emit("worker.broken", worker_id=self.id, error=f"{type(error).__name__}: {error}")
            self.stop()

    async def _begin(self) -> None:
        """Called once before the first look for runs. A worker for one given run claims it here."""

    def _executor_context(self, name: str) -> ExecutorContext:
        other = None if name == self.options.default_executor else name
        return ExecutorContext(
            attempt_services=self._exchange.attempt_services,
            report=partial(self._exchange.report, executor=other),
            store=self.options.store,
            limits=self.options.limits,
            database_url=self.options.database_url,
            task_modules=self.options.task_modules,
            transactions=TRANSACTIONS,
            remote_attempts=DatabaseRemoteAttempts(self._database),
            note_away=partial(self._note_away, name),
        )

    def _note_away(self, executor: str, why: str | None) -> None:
        """Store that an executor does not reach its cluster, or does again."""
        self._away[executor] = why
        self._noting = asyncio.create_task(self._store_away())

    async def _store_away(self) -> None:
        why = "; ".join(found for found in self._away.values() if found) or None

        def note() -> Op[None]:
            return (yield from workers.note_away(self.id, why))

        try:
            await self._database.transact(note)
        except (Unavailable, Busy, psycopg.Error) as error:
            emit("worker.away_not_noted", worker_id=self.id, error=said(error))

    async def _register(self, *, waiting: bool) -> None:
        """Register a new session, and renew it from now on."""
        session = self._exchange.session
        info = session.info(self.options, metadata.version("holdfast"))

        def register() -> Op[None]:
            return (yield from workers.register(info))

        pause = 0.1
        while True:
            sent = monotonic()
            try:
                await self._database.transact(register)
                break
            except Unavailable as error:
                if isinstance(error, ReadOnly) and not (waiting or self._stopping):
                    raise DatabaseReadOnly(f"{said(error)}. Point HOLDFAST_DATABASE_URL at the primary.") from error
                if not (waiting or self._stopping):
                    raise DatabaseUnreachable(f"Postgres does not respond: {said(error)}") from error
                emit("database.away", worker_id=session.id, error=said(error))
            except (Busy, psycopg.Error) as error:
                if not (waiting or self._stopping or isinstance(error, Busy)):
                    raise HoldfastError(f"Postgres rejected the registration of this worker: {said(error)}") from error
                emit("registration.refused", worker_id=session.id, error=said(error))
            await asyncio.sleep(0.0 if self._stopping else pause)
            pause = min(2.0, pause * 2)
            if self._stopping:
                return
        loop = asyncio.get_running_loop()
        self._renewal = RenewalThread(
            self.options,
            session,
            registered=sent,
            renewed=lambda renewal: _later(loop, self._renewed, session, renewal),
            fence=lambda why: self._fence(loop, session, why),
        )
        self._renewal.start()
        emit("worker.started", worker_id=session.id, name=info.name, executor=info.executor, slots=info.slots)

    def _renewed(self, session: WorkerSession, renewal: Renewal) -> None:
        if session is not self._exchange.session or session.over:
            return
        self._stop_runs(renewal.cancelled)
        unknown_leases = session.unknown_leases(renewal)
        if unknown_leases:
            self._exchange.return_unknown_leases(unknown_leases)
        if renewal.drain and not self._stopping:
            emit("worker.draining", worker_id=session.id)
            self.stop()

    def _fence(self, loop: asyncio.AbstractEventLoop, session: WorkerSession, why: str) -> None:
        """Stop all runs at once, whatever the loop is doing. Called in the renewal thread."""
        session.over = True
        for executor in self.executors:
            executor.kill()
        self._fenced = why
        # Operations that still wait for the database would not be answered in time.
        for database in (self._database, self._second, self._upkeep.database):
            _later(loop, database.cut)
        _later(loop, self._exchange.wake)

    async def _start_over(self) -> None:
        """Handle leases that may be lost: report how the runs ended, subject to the fence, and start a new session.

        Claims that had not begun are handed back, so that no run fails because of a worker that never executed it.
        """
        exchange = self._exchange
        emit("worker.fenced", worker_id=exchange.session.id, reason=self._fenced, runs=len(exchange.session.held))
        for executor in self.executors:
            unbegun = await executor.unbegun()
            exchange.results.release(one for one in unbegun if exchange.session.held.get(one.run_id) is one)
        exchange.results.give_up(self._fenced or "its lease was lost")
        while not await exchange.settle_all():
            if self._stopping:
                return
            await asyncio.sleep(AWAY_PAUSE)
        await self._deregister(settled=False)
        exchange.begin_session()
        await self._register(waiting=True)
        if any(self._away.values()):
            await self._store_away()

    def _receive_hints(self, hints: frozenset[str]) -> None:
        if not hints:
            self._exchange.look_soon()
        queues = []
        for hint in hints:
            # Only a listener with an address of its own knows that a claim comes from the database.
            if hint.startswith(HANDED) and self.options.listener.address is not None:
                self._exchange.receive(hint.removeprefix(HANDED))
            elif hint == STOP + self._exchange.session.id:
                self._look_for_stops.set()
            elif not hint.startswith((STOP, HANDED)):
                queues.append(hint)
        if queues:
            self._exchange.ring(queues)

    def _stop_runs(self, refs: Iterable[tuple[str, int]]) -> None:
        for ref in refs:
            claim = self._exchange.session.held.get(ref[0])
            if claim is not None and claim.number == ref[1]:
                for executor in self.executors:
                    executor.stop(claim.ref, CANCEL)

    async def _watch(self) -> None:
        """While runs are held, check twice a second for requests to stop and for claims that found no slot."""
        before: set[str] = set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_EVERY):
                    await self._look_for_stops.wait()
            requested = self._look_for_stops.is_set()
            self._look_for_stops.clear()
            if self._exchange.session.over:
                continue
            held = self._exchange.session.held
            if requested or not before.isdisjoint(held):
                self._upkeep.note_activity()
                self._exchange.hand_back_waiting()
                await self._find_stops()
            before = set(held)

    async def _find_stops(self) -> None:
        worker_id = self._exchange.session.id

        def find() -> Op[list[tuple[str, int]]]:
            return list((yield from leases.stops(worker_id)))

        try:
            self._stop_runs(await self._database.transact(find))
        except (Unavailable, Busy, psycopg.Error) as error:
            emit("watch.postponed", worker_id=worker_id, error=said(error))

    async def _leave(self) -> None:
        """Kill the runs that are left, write all results, and deregister."""
        exchange = self._exchange
        if self._noting is not None:
            self._noting.cancel()
        for executor in self.executors:
            executor.kill()
            # A run may be handed back only when it is certainly dead.
            await executor.close()
        returned = exchange.results.hand_back_all()
        if returned:
            emit("worker.handing_back", worker_id=self.id, runs=returned)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_WITHIN):
                await self._deregister(settled=await self._settle_last())
        if self._renewal is not None:
            await self._renewal.stop()
        await self._close_connections()
        emit("worker.stopped", worker_id=exchange.session.id)

    async def _close_connections(self) -> None:
        await self._upkeep.close()
        await self._second.close()
        await self._database.close()

    async def _settle_last(self) -> bool:
        """Settle all results, retrying for a while. False if something could not be settled."""
        deadline = monotonic() + LEAVE_WITHIN / 2
        while True:
            answered = await self._exchange.settle_all()
            settled = answered and not self._exchange.pending.unsettled()
            if settled or monotonic() >= deadline:
                return settled
            await asyncio.sleep(SETTLE_PAUSE)

    async def _deregister(self, *, settled: bool) -> None:
        session = self._exchange.session
        completed, failed = session.counts()

        def deregister() -> Op[None]:
            return (yield from workers.deregister(session.id, completed, failed, settled=settled))

        try:
            await self._database.transact(deregister)
        except (Unavailable, Busy, psycopg.Error) as error:
            emit("worker.not_deregistered", worker_id=session.id, error=said(error))


def _later(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> None:
    """Call this in the thread of the loop, unless the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *args)
