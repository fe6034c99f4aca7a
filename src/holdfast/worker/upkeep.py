"""Upkeep: what every worker does for all. Each service is bounded, idempotent, and safe to run anywhere at any time.

Nobody is the leader. A service that fails is logged and tried again; one row that cannot be handled never keeps the
others waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import random, uniform
from time import monotonic
from typing import Any

import psycopg

from holdfast import ops
from holdfast.domain.states import Status
from holdfast.domain.values import Verdict
from holdfast.observe import emit
from holdfast.sql import tallies
from holdfast.sql.leases import Orphan
from holdfast.sql.statement import Op
from holdfast.worker.database import UNREACHABLE, Database, said
from holdfast.worker.options import WorkerOptions

FOLDED_AT_ONCE = 5000


@dataclass(frozen=True)
class Service:
    """Something to do every so many seconds; the first time within `first` seconds, so that not all do it at once."""

    every: float
    run: Callable[[Upkeep], Awaitable[None]]
    first: float

    @property
    def name(self) -> str:
        return getattr(self.run, "__name__", "service")


def every(seconds: float, run: Callable[[Upkeep], Awaitable[None]], *, first: float | None = None) -> Service:
    return Service(seconds, run, seconds if first is None else first)


class Upkeep:
    """Runs the services on a connection of their own."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.database = Database(options.database_url, "upkeep", patience=60.0)
        self.busy = True
        self._orphans: list[Orphan] = []
        self._bell = asyncio.Event()

    def rescue(self, orphans: list[Orphan]) -> None:
        """Leases that have passed, found on the way."""
        self._orphans = orphans
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
                due[service] = monotonic() + service.every * uniform(0.9, 1.1)
            else:
                self._bell.clear()
                await self._attempt("rescue", _rescue)

    async def _attempt(self, name: str, run: Callable[[Upkeep], Awaitable[None]]) -> None:
        try:
            await run(self)
        except UNREACHABLE as error:
            emit("upkeep.postponed", service=name, error=said(error))
        except psycopg.Error as error:
            emit("upkeep.failed", service=name, error=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        await self.database.close()

    async def rescue_now(self, orphans: Sequence[Orphan]) -> list[Verdict]:
        """Settle these orphans together, or one by one if together they cannot be settled."""
        try:
            return await self.database.transact(lambda: ops.rescue(orphans, random()))
        except UNREACHABLE:
            raise
        except psycopg.Error as error:
            if len(orphans) == 1:
                emit("rescue.failed", error=str(error), **_about(orphans[0], Status.RUNNING))
                return []
        return [verdict for orphan in orphans for verdict in await self.rescue_now([orphan])]


async def _rescue(upkeep: Upkeep) -> None:
    orphans, upkeep._orphans = upkeep._orphans, []  # noqa: SLF001
    by_ref = {(orphan.run_id, orphan.number): orphan for orphan in orphans}
    for verdict in await upkeep.rescue_now(orphans):
        emit("run.lost", **_about(by_ref[verdict.ref], verdict.outcome or Status.PENDING))


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
    """Add the counters up. An idle worker does it now and then, for those who only submit."""
    if not upkeep.busy and random() > 0.1:
        return
    upkeep.busy = False
    while await upkeep.database.transact(_fold) >= FOLDED_AT_ONCE:
        pass


def _fold() -> Op[int]:
    return (yield from tallies.fold(FOLDED_AT_ONCE))


async def prune(upkeep: Upkeep) -> None:
    """Forget what is past its time."""
    retention = timedelta(days=upkeep.options.retention_days)
    pruned = await upkeep.database.transact(lambda: ops.prune(retention))
    if any(pruned):
        emit("upkeep.pruned", keys=pruned.keys, workers=pruned.workers, strays=pruned.strays, months=pruned.months)


async def make_partitions(upkeep: Upkeep) -> None:
    """Make the tables of the months to come."""
    await upkeep.database.transact(ops.make_partitions)


SERVICES = (
    every(3, fold),
    every(3600, prune, first=600),
    every(86400, make_partitions, first=60),
)
