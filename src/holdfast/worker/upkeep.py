"""Upkeep: services that every worker performs for the whole installation, each bounded, idempotent and safe anywhere.

No worker is the leader. A service is data: what it does, how often, and, if it can say so, when it is due next. All
services share one next wake-up, so an idle worker sleeps until the first of them is due. A service runs

    at its pace        every N seconds, and less often while the worker is idle
    when it is called  a worker that looks for runs also looks for work of the services (`sql.chores`), and calls them
    when it is due     its `due` operation returns the seconds until then; it is called at such a look and after a run

One that has `due` and handles a bounded number of rows needs a short pace, with `idle=ONLY_WHEN_CALLED`: if rows that
are due are left, it runs again at its pace. A service that makes runs ready calls `look_soon`.

A service that fails is logged and runs again later. A row that cannot be handled never blocks the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import inf
from random import random, uniform
from time import monotonic
from typing import Any

import psycopg

from holdfast import ops
from holdfast.domain.settling import is_readable
from holdfast.domain.states import Status
from holdfast.domain.values import RELEASED, Acknowledgement
from holdfast.observe import emit
from holdfast.sql import jobs, locks, ready, tallies
from holdfast.sql.orphans import Orphan
from holdfast.sql.statement import Op
from holdfast.worker.database import Busy, Database, Unavailable, said
from holdfast.worker.options import WorkerOptions

FOLDED_AT_ONCE = 5000
STARTED_AT_ONCE = 1000
NAMED_AT_ONCE = 5000
# A worker counts as busy for this long after it had something to do.
ACTIVE_FOR = 5.0
# The pace of a service that runs only when it is called or due.
ONLY_WHEN_CALLED = 86_400.0

Due = Callable[[], Op[float | None]]


@dataclass(frozen=True)
class Service:
    """Something that is done every `every` seconds, or every `idle` seconds while the worker has nothing to do.

    The first time comes within `first` seconds, at random, so that not all workers do it at once. `due` returns in how
    many seconds there is something to do, or None; the service then runs at that time, whatever its pace. One that is
    still due after its run runs again at its pace.
    """

    every: float
    run: Callable[[Upkeep], Awaitable[None]]
    first: float
    idle: float
    due: Due | None = None

    @property
    def name(self) -> str:
        return getattr(self.run, "__name__", "service")


def every(
    seconds: float,
    run: Callable[[Upkeep], Awaitable[None]],
    *,
    first: float | None = None,
    idle: float | None = None,
    due: Due | None = None,
) -> Service:
    return Service(seconds, run, seconds if first is None else first, seconds if idle is None else idle, due)


class Upkeep:
    """Runs the services, over a connection of their own."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.database = Database(options.database_url, "upkeep", time_limit=30.0, pooler=options.pooler)
        self.look_soon: Callable[[], None] = lambda: None
        """Called when runs became ready, so that this worker looks for them."""
        now = monotonic()
        self._times = {one: now + uniform(0, one.first) for one in (*SERVICES, *options.services)}
        self._by_name = {one.name: one for one in self._times}
        self.due = {one.name: one.due for one in self._times if one.due is not None}
        """The `due` statements, by service. A worker that looks for runs executes them and passes on the results."""
        self._active_at = now
        self._busy = True
        self._orphans: list[Orphan] = []
        self._wake = asyncio.Event()

    def learn(self, orphans: list[Orphan], chores: Sequence[str], due: Mapping[str, float | None]) -> None:
        """Take over what a survey found: expired leases, services to call, and when services are due."""
        if orphans:
            self._orphans = orphans
            self._wake.set()
        if chores:
            self.call(chores)
        if due:
            self.expect(due)

    def call(self, names: Iterable[str]) -> None:
        """Run these services soon: they have something to do."""
        self.expect(dict.fromkeys(names, 0.0))
        self.note_activity()

    def expect(self, due: Mapping[str, float | None]) -> None:
        """Run these services when they are due: after the given seconds, or not at all if that is None."""
        now = monotonic()
        for name, seconds in due.items():
            service = self._by_name.get(name)
            if service is not None and seconds is not None:
                self._times[service] = min(self._times[service], now + seconds)
        self._wake.set()

    def note_activity(self) -> None:
        """Note that the worker has something to do: services run at their usual pace."""
        self._active_at = now = monotonic()
        if not self._busy:
            self._busy = True
            self._times = {one: min(at, now + one.every) for one, at in self._times.items()}
            self._wake.set()

    async def serve(self) -> None:
        while True:
            service = min(self._times, key=lambda one: self._times[one])
            try:
                async with asyncio.timeout(max(0.0, self._times[service] - monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                await self._perform(service)
            else:
                self._wake.clear()
                if self._orphans:
                    await self._attempt("rescue", _rescue)

    async def _perform(self, service: Service) -> None:
        self._times[service] = inf  # it may be called while it runs
        await self._attempt(service.name, service.run)
        now = monotonic()
        self._busy = now - self._active_at < ACTIVE_FOR
        pause = (service.every if self._busy else service.idle) * uniform(0.9, 1.1)
        self._times[service] = min(self._times[service], now + pause)
        if service.due is not None:
            await self._attempt(service.name, partial(_ask_when_due, service))

    async def _attempt(self, name: str, run: Callable[[Upkeep], Awaitable[None]]) -> None:
        try:
            await run(self)
        except (Unavailable, Busy) as error:
            emit("upkeep.postponed", service=name, error=said(error))
        except Exception as error:  # noqa: BLE001 - whatever fails in one service, the others continue
            emit("upkeep.failed", service=name, error=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        await self.database.close()

    async def rescue_now(self, orphans: Sequence[Orphan], *, briefly: bool = False) -> list[Acknowledgement]:
        """Settle these orphaned runs together, or in parts if they cannot be settled together.

        Runs that other transactions have locked are left for the next check.
        """
        try:
            return list(await self.database.transact(lambda: _rescue_all(orphans, briefly)))
        except Busy:
            if len(orphans) == 1:
                return []
            blocked = await self.database.transact(lambda: ops.find_blocked([one.run_id for one in orphans]))
            held_up = {one.run_id for one in blocked}
            free = [orphan for orphan in orphans if orphan.run_id not in held_up]
            # A lock that `find_blocked` does not detect is found by halving the batch.
            middle = len(free) // 2 if len(free) == len(orphans) else 0
            return [
                *await self.rescue_now(free[:middle], briefly=True),
                *await self.rescue_now(free[middle:], briefly=True),
            ]
        except psycopg.Error as error:
            if len(orphans) == 1:
                emit("rescue.failed", error=str(error), **_about(orphans[0], Status.RUNNING))
                return []
        return [ack for orphan in orphans for ack in await self.rescue_now([orphan])]


def _rescue_all(orphans: Sequence[Orphan], briefly: bool) -> Op[Sequence[Acknowledgement]]:
    if briefly:
        yield from locks.wait_briefly()
    return (yield from ops.rescue(orphans, random()))


async def _ask_when_due(service: Service, upkeep: Upkeep) -> None:
    assert service.due is not None  # noqa: S101
    seconds = await upkeep.database.transact(service.due)
    if seconds is not None:
        upkeep.expect({service.name: seconds if seconds > 0 else service.every})


async def _rescue(upkeep: Upkeep) -> None:
    orphans, upkeep._orphans = upkeep._orphans, []  # noqa: SLF001
    by_ref = {(orphan.run_id, orphan.number): orphan for orphan in orphans}
    for orphan in orphans:
        if not is_readable(orphan.policy):
            emit("run.policy_unreadable", policy=orphan.policy, **_about(orphan, Status.RUNNING))
    for ack in await upkeep.rescue_now(orphans):
        event = "run.released" if ack.status == RELEASED else "run.lost"
        emit(event, **_about(by_ref[ack.ref], ack.outcome or Status.PENDING))
    upkeep.look_soon()


def _about(orphan: Orphan, status: str) -> dict[str, Any]:
    return {
        "run_id": orphan.run_id,
        "payload_hash": orphan.payload_hash,
        "worker_id": orphan.worker_id,
        "status": str(status),
        "attempt_count": orphan.number,
        "task": orphan.task,
    }


async def fold(upkeep: Upkeep) -> None:
    """Add up the counters."""
    while await upkeep.database.transact(_fold) >= FOLDED_AT_ONCE:
        pass


def _fold() -> Op[int]:
    return (yield from tallies.fold(FOLDED_AT_ONCE))


async def start_late_jobs(upkeep: Upkeep) -> None:
    """Start jobs that were locked when their first run was claimed."""
    await upkeep.database.transact(lambda: iter(jobs.start_late(STARTED_AT_ONCE)))


async def name_tasks(upkeep: Upkeep) -> None:
    """Make ready runs that the previous version added visible to workers."""
    if await upkeep.database.transact(lambda: iter(ready.name_tasks(NAMED_AT_ONCE))):
        upkeep.look_soon()


async def prune(upkeep: Upkeep) -> None:
    """Remove a bounded part of what is past its retention; if there is more, continue after the other services."""
    retention = timedelta(days=upkeep.options.retention_days)
    pruned = await upkeep.database.transact(lambda: ops.prune(retention))
    if any(pruned):
        emit("upkeep.pruned", keys=pruned.keys, workers=pruned.workers, strays=pruned.strays, months=pruned.months)
    if pruned.more:
        upkeep.call([prune.__name__])


async def make_partitions(upkeep: Upkeep) -> None:
    """Create the tables of the coming months."""
    await upkeep.database.transact(ops.make_partitions)


SERVICES = (
    every(3, fold, idle=ONLY_WHEN_CALLED),
    every(1, start_late_jobs, idle=ONLY_WHEN_CALLED),
    every(5, name_tasks, idle=ONLY_WHEN_CALLED),
    every(3600, prune, first=600),
    every(3600, make_partitions, first=0),
)
