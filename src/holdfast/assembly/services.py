"""Upkeep services that need settings or systems other than Postgres: publishing, jobs, stored results, and RQ.

The worker gets them from here, in addition to those in `worker.upkeep`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from holdfast import ops
from holdfast.jobs import upkeep as jobs
from holdfast.observe import emit
from holdfast.outbox.publisher import Publisher
from holdfast.processes.threads import in_thread
from holdfast.results import ResultStore
from holdfast.runtime.runtime import Runtime
from holdfast.verbs.procedures import Elsewhere, Procedure, follow_async
from holdfast.worker.upkeep import ONLY_WHEN_CALLED, Service, Upkeep, every

PUBLISH_EVERY = 1.0
RING_EVERY = 1.0
FORGET_EVERY = 600.0
PROMOTED_AT_ONCE = 1000


def services(runtime: Runtime) -> tuple[Service, ...]:
    """Return the services that the settings require."""
    publisher = Publisher(runtime.settings)

    async def publish(upkeep: Upkeep) -> None:
        publisher.start_round(upkeep.database.transact)

    async def forget_deliveries(upkeep: Upkeep) -> None:
        await publisher.forget(upkeep.database.transact)

    made = [every(PUBLISH_EVERY, publish, idle=ONLY_WHEN_CALLED), every(FORGET_EVERY, forget_deliveries)]
    made += [every(pace, _following(procedure), idle=idle) for pace, idle, procedure in JOB_SERVICES]
    made += [every(FORGET_EVERY, _removing(runtime))]
    if runtime.settings.doorbell == "rq":
        made += [every(RING_EVERY, _ring(runtime)), every(FORGET_EVERY, _forget_single_workers)]
    return tuple(made)


# The interval in seconds, the interval while the worker is idle, and the function.
JOB_SERVICES: list[tuple[float, float, Callable[[], Procedure[int]]]] = [
    (2.0, ONLY_WHEN_CALLED, jobs.stop_overdue_jobs),
    (2.0, ONLY_WHEN_CALLED, jobs.end_held_jobs),
    (5.0, ONLY_WHEN_CALLED, jobs.remove_resources),
    (30.0, 120.0, jobs.heal_dependencies),
]


def remove_results(store: Callable[[], ResultStore]) -> Procedure[int]:
    """Remove the stored results of a bounded number of pruned runs, and return how many.

    Results that cannot be removed are retried later.
    """
    found: list[str] = yield ops.results_to_remove
    removed, failed = [], []
    for run_id in found:
        try:
            yield Elsewhere(partial(_remove, store, run_id))
            removed.append(run_id)
        except Exception as error:  # noqa: BLE001 - one that cannot be removed must not block the others
            emit("results.not_removed", run_id=run_id, error=f"{type(error).__name__}: {error}")
            failed.append(run_id)
    if removed:
        yield partial(ops.results_removed, removed)
    if failed:
        yield partial(ops.results_not_removed, failed)
    return len(removed)


def _remove(store: Callable[[], ResultStore], run_id: str) -> None:
    store().remove(run_id)


def _removing(runtime: Runtime) -> Callable[[Upkeep], Awaitable[None]]:
    async def remove_pruned_results(upkeep: Upkeep) -> None:
        if await follow_async(remove_results(lambda: runtime.store), upkeep.database.transact):
            upkeep.call([remove_pruned_results.__name__])

    return remove_pruned_results


def _following(procedure: Callable[[], Procedure[int]]) -> Callable[[Upkeep], Awaitable[None]]:
    async def service(upkeep: Upkeep) -> None:
        await follow_async(procedure(), upkeep.database.transact)

    service.__name__ = procedure.__name__
    return service


def _ring(runtime: Runtime) -> Callable[[Upkeep], Awaitable[None]]:
    from holdfast.doorbells.rq import ENOUGH_WAITING, RunRinger

    settings = runtime.settings
    ringer = RunRinger(settings.redis_url or "", settings.ring_seconds)

    async def ring_for_rq(upkeep: Upkeep) -> None:
        """Ring for runs whose message was lost, and for runs that became ready since."""
        if not await in_thread(lambda: ringer.may_sweep(RING_EVERY * 0.9)):
            return
        await upkeep.database.transact(lambda: ops.promote(PROMOTED_AT_ONCE))
        ready = await upkeep.database.transact(lambda: ops.find_ready(ENOUGH_WAITING))
        if ready:
            await in_thread(lambda: ringer.ring_again(ready))

    return ring_for_rq


async def _forget_single_workers(upkeep: Upkeep) -> None:
    await upkeep.database.transact(ops.forget_single_workers)
