"""Runs in Ray actors, for many runs on the machines of a cluster; short ones are sent in batches.

The worker holds the leases and settles the attempts; its actors only execute them (`holdfast.raycore`). So the number
of connections to Postgres does not grow with the number of actors. Each actor has a name and survives its worker. It
gets one run at a time, so that it can be killed if the run does not stop; only runs that take milliseconds are sent in
batches. Ray retries nothing: attempts are counted here. If an actor, node or cluster dies, the attempt is LOST and
counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from random import uniform
from time import monotonic
from typing import Any

from holdfast.domain.execution import Ended, ExecutorContext
from holdfast.domain.masking import mask_secrets
from holdfast.domain.reasons import LeaseRequest, ReasonCode, out_of_time
from holdfast.domain.settling import Failed, HandedBack, Outcome, stopped_by, timeout_of
from holdfast.domain.tasks import registry
from holdfast.domain.values import AttemptRef, Claim
from holdfast.executors.ray_cluster import ActorGone, Cluster
from holdfast.executors.ray_host import Assigned, Host
from holdfast.executors.ray_pool import PLAIN, Pool, Shape, Waiting, shape_of
from holdfast.observe import emit

CHECK_EVERY = 0.25
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
# After this long, record where a run is executed, and take back the runs that wait behind it.
LONG_SECONDS = 1.0
# If there are no actors, probe the cluster this often, and give it up after this many probes without a response.
PROBE_EVERY, PROBES, PROBE_SECONDS = 3.0, 2, 10.0

Connect = Callable[[], Coroutine[Any, Any, Cluster]]


class RayCoreExecutor:
    """Performs runs in actors whose names begin with `pool`: up to `slots` of each shape, and `slots` runs at once.

    If runs take only milliseconds, more are held.
    """

    name = "ray_core"

    def __init__(self, slots: int, pool: str, connect: Connect) -> None:
        self.slots = slots
        self._name = pool
        self._connect = connect
        self._pools: dict[Shape, Pool] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._cluster: Cluster | None = None
        self._killed = False

    async def open(self, context: ExecutorContext) -> None:
        self._context = context
        self._pool(PLAIN)
        self._tasks.add(asyncio.create_task(self._serve()))
        self._tasks.add(asyncio.create_task(self._check_limits()))

    def _pool(self, shape: Shape) -> Pool:
        pool = self._pools.get(shape)
        if pool is None:
            name = f"{self._name}-{len(self._pools)}"
            pool = self._pools[shape] = Pool(name, shape, self.slots, self._context, self._lost, self._ended)
        return pool

    async def _serve(self) -> None:
        """Stay connected to the cluster, reconnecting if necessary, and keep actors in the pools."""
        pause = FIRST_PAUSE
        while True:
            try:
                cluster = self._cluster = await self._connect()
            except (ActorGone, OSError) as error:
                self._note_away(f"{type(error).__name__}: {error}")
                await asyncio.sleep(pause * uniform(0.7, 1.3))
                pause = min(LONGEST_PAUSE, pause * 2)
                continue
            pause = FIRST_PAUSE
            emit("ray.connected", address=cluster.address, actors=self.slots)
            for pool in self._pools.values():
                pool.grow(cluster)
            await self._until_away(cluster)
            self._note_away(f"the Ray cluster at {cluster.address} is gone")
            self._cluster = None
            for pool in self._pools.values():
                await pool.close()
            await cluster.close()

    def _note_away(self, why: str) -> None:
        emit("ray.away", error=why[:300])
        self._context.note_away(mask_secrets(why[:300]))

    async def _until_away(self, cluster: Cluster) -> None:
        away = 0
        while away < PROBES:
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_EVERY * uniform(0.7, 1.3)):
                    await cluster.gone.wait()
                    return
            # A busy cluster may respond late. It counts as gone only if no actor is left either.
            away = 0 if self._pools[PLAIN].hosts or await _answers(cluster) else away + 1

    # The worker's side.

    def give(self, worker_id: str, claims: Sequence[Claim]) -> None:
        now = monotonic()
        shapes = {task: shape_of(registry.find(task)) for task in {claim.task for claim in claims}}
        for shape in set(shapes.values()):
            given = claims if len(shapes) == 1 else [claim for claim in claims if shapes[claim.task] == shape]
            self._pool(shape).add([Waiting(worker_id, claim, now) for claim in given], self._cluster)

    def room(self) -> int:
        """Return 0 without a plain actor: the cluster is unreachable or full, and other workers may take the runs."""
        plain = self._pools[PLAIN]
        if not plain.hosts or self._cluster is None:
            return 0
        special = sum(pool.held for pool in self._pools.values() if pool is not plain)
        return max(0, plain.room() - special)

    def _hosts(self) -> list[Host]:
        return [host for pool in list(self._pools.values()) for host in list(pool.hosts)]

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        for pool in self._pools.values():
            for entry in pool.waiting:
                if entry.claim.ref == ref:
                    pool.waiting.remove(entry)
                    self._context.report([Ended(entry.claim, stopped_by(request, 0.0))])
                    return
        for host in self._hosts():
            host.stop(ref, request)

    def take_back(self, waiting_for: float = 0.0) -> list[Claim]:
        if not waiting_for:
            for host in self._hosts():
                host.withdraw()
        return [claim for pool in self._pools.values() for claim in pool.take_back(waiting_for)]

    def kill(self) -> None:
        self._killed = True
        cluster = self._cluster
        if cluster is not None:
            cluster.kill_all()

    async def unbegun(self) -> list[Claim]:
        self._killed = False
        return self.take_back()

    async def close(self) -> None:
        """Kill the actors. They survive only if this worker is killed."""
        self._killed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pool in self._pools.values():
            await pool.close()
        if self._cluster is not None:
            await self._cluster.close()

    # The actors' side.

    def _ended(self, ended: Sequence[Ended]) -> None:
        if not self._killed:
            self._context.report(ended)

    def _lost(self, host: Host, error: ActorGone) -> None:
        """Report the runs of an actor that is gone."""
        assigned = list(host.assigned.values())
        host.assigned.clear()
        if assigned and not self._killed:
            where = f" (actor {host.where.get('ray_actor_id')} on node {host.where.get('ray_node_id')})"
            alone = len(assigned) == 1
            self._context.report([Ended(one.claim, _outcome(one, error, where, alone=alone)) for one in assigned])

    async def _check_limits(self) -> None:
        """Kill actors whose run ignores a stop request or its time limit, and handle runs that take long."""
        while True:
            await asyncio.sleep(CHECK_EVERY)
            now = monotonic()
            for host in self._hosts():
                if any(self._must_be_killed(assigned_run, now) for assigned_run in host.assigned.values()):
                    host.end()
                elif (first := host.first) is not None and now - (first.first_at or now) > LONG_SECONDS:
                    host.withdraw()
                    if not first.described:
                        first.described = True
                        self._describe(host, first)

    def _must_be_killed(self, assigned_run: Assigned, now: float) -> bool:
        limit = timeout_of(assigned_run.claim.policy) or self._context.limits.timeout
        running = assigned_run.first_at is not None and assigned_run.stop is None
        # Normally the actor itself asks the run to stop at its time limit; this is for an actor that cannot.
        if limit is not None and running and now - (assigned_run.first_at or now) > limit + assigned_run.extended:
            assigned_run.stop, assigned_run.stop_at = out_of_time(limit), now
        return assigned_run.stop is not None and now - assigned_run.stop_at > self._context.limits.grace

    def _describe(self, host: Host, assigned_run: Assigned) -> None:
        async def describe() -> None:
            with suppress(Exception):  # the attempt may have ended; nothing depends on this
                await self._context.attempt_services.describe(assigned_run.claim.ref, host.where)

        task = asyncio.create_task(describe())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answers(cluster: Cluster) -> bool:
    with suppress(ActorGone, TimeoutError):
        async with asyncio.timeout(PROBE_SECONDS):
            return await cluster.answers()
    return False


def _outcome(assigned_run: Assigned, error: ActorGone, where: str, *, alone: bool) -> Outcome:
    """The outcome of a run whose actor is gone. In a batch, any run may be at fault, so no attempt is counted."""
    elapsed = monotonic() - assigned_run.given_at
    if assigned_run.stop is not None:
        return stopped_by(assigned_run.stop, elapsed)
    if not alone:
        return HandedBack(elapsed)
    message = mask_secrets(str(error).partition("\n")[0][:1000]) + where
    described = {"class": error.kind, "message": message, "traceback": None}
    return Failed(described, reason=ReasonCode.CRASH, elapsed=elapsed, lost=True)
