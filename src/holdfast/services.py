"""What a worker does for all besides the upkeep of runs: publish events, look after jobs, and ring for RQ.

These need settings and the world outside of Postgres, so they are put together here and handed to the worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast import ops
from holdfast.client.surroundings import Surroundings
from holdfast.jobs import upkeep as jobs
from holdfast.jobs.procedures import Procedure, follow_async
from holdfast.ops import ring
from holdfast.outbox.publisher import Publisher, in_thread
from holdfast.worker.upkeep import ONLY_WHEN_CALLED, Service, Upkeep, every

PUBLISH_EVERY = 1.0
RING_EVERY = 1.0
FORGET_EVERY = 600.0
PROMOTED_AT_ONCE = 1000


def services(surroundings: Surroundings) -> tuple[Service, ...]:
    """The services that the settings ask for."""
    publisher = Publisher(surroundings.settings)

    async def publish(upkeep: Upkeep) -> None:
        publisher.start_round(upkeep.database.transact)

    async def forget_deliveries(upkeep: Upkeep) -> None:
        await publisher.forget(upkeep.database.transact)

    made = [every(PUBLISH_EVERY, publish, idle=ONLY_WHEN_CALLED), every(FORGET_EVERY, forget_deliveries)]
    made += [every(pace, _following(procedure), idle=idle) for pace, idle, procedure in JOB_SERVICES]
    if surroundings.settings.doorbell == "rq":
        made += [every(RING_EVERY, _ring(surroundings)), every(FORGET_EVERY, _forget_single_workers)]
    return tuple(made)


# How often each is done, in seconds, and how often while the worker is idle.
JOB_SERVICES: list[tuple[float, float, Callable[[], Procedure[int]]]] = [
    (2.0, ONLY_WHEN_CALLED, jobs.stop_overdue_jobs),
    (2.0, ONLY_WHEN_CALLED, jobs.end_held_jobs),
    (5.0, ONLY_WHEN_CALLED, jobs.remove_resources),
    (30.0, 120.0, jobs.heal_dependencies),
]


def _following(procedure: Callable[[], Procedure[int]]) -> Callable[[Upkeep], Awaitable[None]]:
    async def service(upkeep: Upkeep) -> None:
        await follow_async(procedure(), upkeep.database.transact)

    service.__name__ = procedure.__name__
    return service


def _ring(surroundings: Surroundings) -> Callable[[Upkeep], Awaitable[None]]:
    from holdfast.doorbells.rq import ENOUGH_WAITING, Ring, RunRinger

    settings = surroundings.settings
    ringer = RunRinger(settings.redis_url or "", settings.ring_seconds)

    async def ring_for_rq(upkeep: Upkeep) -> None:
        """Ring for runs whose message was lost, and for those that were made ready since."""
        if not await in_thread(lambda: ringer.turn(RING_EVERY * 0.9)):
            return
        await upkeep.database.transact(lambda: ops.promote(PROMOTED_AT_ONCE))
        ready = await upkeep.database.transact(lambda: ring.find_ready(ENOUGH_WAITING))
        if ready:
            await in_thread(lambda: ringer.ring_again([Ring(*one) for one in ready]))

    return ring_for_rq


async def _forget_single_workers(upkeep: Upkeep) -> None:
    await upkeep.database.transact(ring.forget_single_workers)
