"""Runs in actors on Ray: for many runs, short ones in batches, on the machines of a cluster.

The worker holds the leases and settles; its actors only execute (`holdfast.raycore`). So the number of connections to
Postgres does not grow with that of actors. Each actor has a name and outlives the death of its worker. It gets one
run at a time, so that it can be killed for a run that does not stop; only runs that take milliseconds come in batches.
Ray retries nothing: attempts are counted here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from holdfast.domain.execution import Ended, ExecutorContext
from holdfast.domain.reasons import LeaseRequest, ReasonCode, out_of_time
from holdfast.domain.settling import Failed, NotBegun, Outcome, stopped_by, timeout_of
from holdfast.domain.values import AttemptRef, Claim
from holdfast.executors.pace import Pace
from holdfast.executors.ray_host import Flight, Host
from holdfast.observe import emit

LOOK_EVERY = 0.25
AWAY_PAUSE = 5.0
# Runs that take less than this on average are given in batches that keep an actor busy for about so long.
BATCH_SECONDS = 0.05
MOST_PER_BATCH = 200
# What lasts longer shows where it is executed.
DESCRIBE_AFTER = 1.0

Connect = Callable[[], "Cluster"]


class Cluster:
    """What the executor needs of Ray; made where Ray is imported."""

    address: str

    def make_host(self, name: str, place: ExecutorContext) -> Any:
        """The actor of this name, a new one or the one that is there."""
        raise NotImplementedError

    def kill(self, actor: Any) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class RayCoreExecutor:
    """Performs runs in `slots` actors, whose names begin with `pool`."""

    name = "ray_core"

    def __init__(self, slots: int, pool: str, connect: Connect) -> None:
        self.slots = slots
        self._pool = pool
        self._connect = connect
        self._pace = Pace(slots * MOST_PER_BATCH)
        self._waiting: deque[tuple[str, Claim, float]] = deque()
        self._hosts: list[Host] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._cluster: Cluster | None = None
        self._killed = False

    async def open(self, place: ExecutorContext) -> None:
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._tasks.add(asyncio.create_task(self._serve()))
        self._tasks.add(asyncio.create_task(self._look_after()))

    async def _serve(self) -> None:
        """Connect, asking again while there is no Ray, and keep every slot filled with an actor."""
        while self._cluster is None:
            try:
                self._cluster = await asyncio.to_thread(self._connect)
            except Exception as error:  # noqa: BLE001 - Ray raises anything if there is no cluster
                emit("ray.away", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(AWAY_PAUSE)
        emit("ray.connected", address=self._cluster.address, actors=self.slots)
        for number in range(self.slots):
            self._tasks.add(asyncio.create_task(self._keep(self._cluster, f"{self._pool}-{number}")))

    async def _keep(self, cluster: Cluster, name: str) -> None:
        """Have an actor of this name work, and another in its place whenever it is gone."""
        while True:
            host = Host(cluster, name, self._place, self._next_batch, self._ended)
            try:
                if await host.start():
                    self._hosts.append(host)
                    emit("ray.actor_started", name=name, **host.where)
                    await host.work()
            except Exception as error:  # noqa: BLE001 - Ray has dozens of ways to say that an actor is gone
                if not host.killed:
                    emit("ray.actor_lost", name=name, error=f"{type(error).__name__}: {str(error)[:300]}")
                self._lost(host, error)
            finally:
                with suppress(ValueError):
                    self._hosts.remove(host)
            await asyncio.to_thread(cluster.kill, host.actor)

    # The worker's side.

    def give(self, worker_id: str, claims: Sequence[Claim]) -> None:
        now = monotonic()
        self._waiting.extend((worker_id, claim, now) for claim in claims)
        for host in self._hosts:
            host.wake()

    def room(self) -> int:
        if not self._hosts:
            return 0
        flights = [flight for host in self._hosts for flight in host.flights.values()]
        oldest = min((flight.given_at for flight in flights), default=None)
        wanted = self._pace.wanted(len(self._hosts), monotonic() - oldest if oldest is not None else 0.0)
        return max(0, wanted - len(flights) - len(self._waiting))

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        for entry in self._waiting:
            if entry[1].ref == ref:
                self._waiting.remove(entry)
                self._place.report([Ended(entry[1], stopped_by(request, 0.0))])
                return
        for host in self._hosts:
            host.stop(ref, request)

    def take_back(self, waiting_for: float = 0.0) -> list[Claim]:
        before = monotonic() - waiting_for
        taken = [entry for entry in self._waiting if entry[2] <= before]
        for entry in taken:
            self._waiting.remove(entry)
        return [claim for _, claim, _ in taken]

    def kill(self) -> None:
        self._killed = True
        for host in list(self._hosts):
            host.end()

    async def unbegun(self) -> list[Claim]:
        self._killed = False
        return self.take_back()

    async def close(self) -> None:
        """End the actors with this worker; they outlive it only if it is killed."""
        self._killed = True
        for host in list(self._hosts):
            host.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.close)

    # The actors' side.

    def _next_batch(self) -> list[tuple[str, Claim]]:
        """What an idle actor gets: one run, or as many as it does in a moment."""
        mean = self._pace.mean
        share = -(-len(self._waiting) // max(1, len(self._hosts)))
        tiny = mean is not None and mean < BATCH_SECONDS
        count = min(MOST_PER_BATCH, share, int(BATCH_SECONDS / max(mean, 1e-6)) + 1) if tiny and mean is not None else 1
        batch = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        return [(worker_id, claim) for worker_id, claim, _ in batch]

    def _ended(self, ended: Sequence[Ended]) -> None:
        if ended and not self._killed:
            self._pace.saw(len(ended), sum(one.outcome.elapsed or 0.0 for one in ended))
            self._place.report(ended)

    def _lost(self, host: Host, error: BaseException) -> None:
        """The actor is gone: the run it was at crashed, or was killed for a reason; the next ones had not begun."""
        if self._killed:
            host.flights.clear()
            return
        ended: list[Ended] = []
        for flight in host.flights.values():
            ended.append(Ended(flight.claim, _outcome(flight, error, begun=not ended)))
        host.flights.clear()
        if ended:
            self._place.report(ended)

    async def _look_after(self) -> None:
        """End actors whose run ignores a request to stop, or its time limit; show where long runs are executed."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = monotonic()
            for host in list(self._hosts):
                for flight in list(host.flights.values()):
                    if self._is_deaf(flight, now):
                        host.end()
                        break
                    if now - flight.given_at > DESCRIBE_AFTER and not flight.described:
                        flight.described = True
                        self._describe(host, flight)

    def _is_deaf(self, flight: Flight, now: float) -> bool:
        grace = self._place.limits.grace
        limit = timeout_of(flight.claim.policy) or self._place.limits.timeout
        if limit is not None and flight.stop is None and now - flight.given_at > limit + flight.extended:
            flight.stop, flight.stop_at = out_of_time(limit), now
        return flight.stop is not None and now - flight.stop_at > grace

    def _describe(self, host: Host, flight: Flight) -> None:
        async def describe() -> None:
            with suppress(Exception):  # it may have ended; nothing depends on it
                await self._place.attempt_services.describe(flight.claim.ref, host.where)

        task = asyncio.create_task(describe())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _outcome(flight: Flight, error: BaseException, *, begun: bool) -> Outcome:
    if flight.stop is not None:
        return stopped_by(flight.stop, monotonic() - flight.given_at)
    if not begun:
        return NotBegun()
    message = str(error).partition("\n")[0][:1000]
    described = {"class": type(error).__name__, "message": message, "traceback": None}
    return Failed(described, reason=ReasonCode.CRASH, elapsed=monotonic() - flight.given_at)
