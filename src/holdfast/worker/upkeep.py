"""Upkeep: what every worker does for all. Each service is bounded, idempotent, and safe to run anywhere at any time.

Nobody is the leader. A service that fails is logged and tried again; one row that cannot be handled never keeps the
others waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
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
from holdfast.sql.leases import Orphan
from holdfast.sql.statement import Op
from holdfast.worker.database import Busy, Database, Unavailable, said
from holdfast.worker.options import WorkerOptions

FOLDED_AT_ONCE = 5000
STARTED_AT_ONCE = 1000
NAMED_AT_ONCE = 5000
# A worker counts as busy for so long after it had something to do.
ACTIVE_FOR = 5.0
# The pause of a service that the worker is called to when there is something to do: see `sql.chores`.
ONLY_WHEN_CALLED = 86_400.0


@dataclass(frozen=True)
class Service:
    """Something to do when called, every so many seconds, or every `idle` seconds while the worker has nothing to do.

    The first time comes within `first` seconds, so that not all workers do it at once.
    """

    every: float
    run: Callable[[Upkeep], Awaitable[None]]
    first: float
    idle: float

    @property
    def name(self) -> str:
        return getattr(self.run, "__name__", "service")


def every(
    seconds: float,
    run: Callable[[Upkeep], Awaitable[None]],
    *,
    first: float | None = None,
    idle: float | None = None,
) -> Service:
    return Service(seconds, run, seconds if first is None else first, seconds if idle is None else idle)


class Upkeep:
    """Runs the services on a connection of their own."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.database = Database(options.database_url, "upkeep", patience=30.0, pooler=options.pooler)
        self._active_at = monotonic()
        self._busy = True
        self.rescued: Callable[[], None] = _nobody
        self._orphans: list[Orphan] = []
        self._called: set[str] = set()
        self._bell = asyncio.Event()

    def rescue(self, orphans: list[Orphan]) -> None:
        """Leases that have passed, found on the way."""
        self._orphans = orphans
        self._bell.set()

    def call(self, names: Iterable[str]) -> None:
        """These services have something to do, as was seen on the way."""
        self._called.update(names)
        self._bell.set()
        self.note_activity()

    def note_activity(self) -> None:
        """The worker has something to do: services come at their usual pace."""
        self._active_at = monotonic()
        if not self._busy:
            self._busy = True
            self._bell.set()

    async def serve(self) -> None:
        due = {service: monotonic() + uniform(0, service.first) for service in (*SERVICES, *self.options.services)}
        while True:
            service = min(due, key=lambda one: due[one])
            try:
                async with asyncio.timeout(max(0.0, due[service] - monotonic())):
                    await self._bell.wait()
            except TimeoutError:
                await self._attempt(service.name, service.run)
                self._busy = monotonic() - self._active_at < ACTIVE_FOR
                pause = service.every if self._busy else service.idle
                due[service] = monotonic() + pause * uniform(0.9, 1.1)
            else:
                self._bell.clear()
                now = monotonic()
                due = {one: min(at, now + one.every) if self._busy else at for one, at in due.items()}
                due |= {one: min(due[one], now) for one in due if one.name in self._called}
                self._called.clear()
                if self._orphans:
                    await self._attempt("rescue", _rescue)

    async def _attempt(self, name: str, run: Callable[[Upkeep], Awaitable[None]]) -> None:
        try:
            await run(self)
        except (Unavailable, Busy) as error:
            emit("upkeep.postponed", service=name, error=said(error))
        except Exception as error:  # noqa: BLE001 - whatever fails in one service, the others go on
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


def _nobody() -> None:
    """Nobody here would claim what was rescued."""


async def _rescue(upkeep: Upkeep) -> None:
    orphans, upkeep._orphans = upkeep._orphans, []  # noqa: SLF001
    by_ref = {(orphan.run_id, orphan.number): orphan for orphan in orphans}
    for orphan in orphans:
        if not is_readable(orphan.policy):
            emit("run.policy_unreadable", policy=orphan.policy, **_about(orphan, Status.RUNNING))
    for ack in await upkeep.rescue_now(orphans):
        event = "run.released" if ack.status == RELEASED else "run.lost"
        emit(event, **_about(by_ref[ack.ref], ack.outcome or Status.PENDING))
    upkeep.rescued()


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
    """Add the counters up."""
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
        upkeep.rescued()


async def prune(upkeep: Upkeep) -> None:
    """Remove a bounded part of what is past its retention; if there is more, continue after the other services."""
    retention = timedelta(days=upkeep.options.retention_days)
    pruned = await upkeep.database.transact(lambda: ops.prune(retention))
    if any(pruned):
        emit("upkeep.pruned", keys=pruned.keys, workers=pruned.workers, strays=pruned.strays, months=pruned.months)
    if pruned.more:
        upkeep.call([prune.__name__])


async def make_partitions(upkeep: Upkeep) -> None:
    """Make the tables of the months to come."""
    await upkeep.database.transact(ops.make_partitions)


SERVICES = (
    every(3, fold, idle=ONLY_WHEN_CALLED),
    every(1, start_late_jobs, idle=ONLY_WHEN_CALLED),
    every(5, name_tasks, idle=ONLY_WHEN_CALLED),
    every(3600, prune, first=600),
    every(3600, make_partitions, first=0),
)
