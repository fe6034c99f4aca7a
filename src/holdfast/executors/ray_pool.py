"""A worker's actors of one shape, and the runs that wait for them.

Tasks without special needs share the plain pool, whose actors are always running. Tasks that name resources or an
environment get actors of that shape when their runs arrive; these actors exit after being idle for a while, because
they occupy resources that others may need.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import uniform
from time import monotonic
from typing import Any, NamedTuple

import orjson

from holdfast.domain.execution import Ended, ExecutorContext
from holdfast.domain.masking import mask_secrets
from holdfast.domain.tasks import Task
from holdfast.domain.values import Claim
from holdfast.executors.pace import Pace
from holdfast.executors.ray_cluster import ActorGone, Cluster, RayGone
from holdfast.executors.ray_host import Host
from holdfast.observe import emit

# Runs that take less than this on average are sent in batches that keep an actor busy for about this long.
BATCH_SECONDS = 0.05
MOST_PER_BATCH = 200
BATCHES_PER_ACTOR = 3
# What a message to an actor and its answer take on a busy machine.
MESSAGE_SECONDS = 0.005
IDLE_SECONDS = 30.0
# How long runs wait for an actor that is starting before another worker may take them.
START_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0


class Shape(NamedTuple):
    """The resources of an actor, as canonical text, and the name of its environment in the settings."""

    resources: str = "{}"
    environment: str | None = None

    @property
    def needs(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = orjson.loads(self.resources)
        return found


PLAIN = Shape()


def shape_of(task: Task | None) -> Shape:
    """The shape of the actors that can execute this task."""
    if task is None or not (task.resources or task.environment):
        return PLAIN
    text = orjson.dumps(dict(task.resources or {}), option=orjson.OPT_SORT_KEYS).decode()
    return Shape(text, task.environment)


class Waiting(NamedTuple):
    worker_id: str
    claim: Claim
    given_at: float


class Pool:
    """Keeps up to `slots` actors of one shape. The plain pool is `warm`: all of its actors are always running."""

    def __init__(
        self,
        name: str,
        shape: Shape,
        slots: int,
        context: ExecutorContext,
        lost: Callable[[Host, ActorGone], None],
        ended: Callable[[Sequence[Ended]], None],
    ) -> None:
        self.name = name
        self.shape = shape
        self.slots = slots
        self.pace = Pace(slots * MOST_PER_BATCH)
        self.waiting: deque[Waiting] = deque()
        self.hosts: list[Host] = []
        self._context = context
        self._lost = lost
        self._ended = ended
        self._away: str | None = None
        self._keepers: dict[int, asyncio.Task[None]] = {}

    @property
    def warm(self) -> bool:
        return self.shape == PLAIN

    @property
    def held(self) -> int:
        return len(self.waiting) + sum(len(host.assigned) for host in self.hosts)

    def add(self, waiting: Sequence[Waiting], cluster: Cluster | None) -> None:
        self.waiting.extend(waiting)
        self.grow(cluster)
        for host in self.hosts:
            host.wake()

    def grow(self, cluster: Cluster | None) -> None:
        """Start missing actors: all of the plain pool, and in other pools as many as there are runs."""
        if cluster is None:
            return
        if not self.hosts and self._away is None:
            self._note("the worker is connected, and its actors are starting")
        wanted = self.slots if self.warm else min(self.slots, self.held)
        for number in range(self.slots):
            if len(self._keepers) >= wanted:
                return
            if number not in self._keepers:
                task = self._keepers[number] = asyncio.create_task(self._keep(cluster, number))
                task.add_done_callback(partial(self._kept, number))

    def _kept(self, number: int, keeper: asyncio.Task[None]) -> None:
        if self._keepers.get(number) is keeper:
            del self._keepers[number]

    async def _keep(self, cluster: Cluster, number: int) -> None:
        """Run an actor, and replace it whenever it is lost, until it is no longer needed."""
        name, pause = f"{self.name}-{number}", FIRST_PAUSE
        while True:
            host = Host(cluster, name, self.shape, self._context, self._next_batch, self._record_ended)
            began = False
            try:
                began = await self._started(host)
                if began:
                    await host.work(None if self.warm else IDLE_SECONDS)
                    return
            except asyncio.CancelledError:
                self._lost(host, ActorGone("ActorGivenUp", f"the worker gave up actor {name}"))
                raise
            except RayGone as error:
                self._lost(host, error)
                return
            except ActorGone as error:
                if not host.killed:
                    emit("ray.actor_lost", name=name, error=f"{error.kind}: {str(error)[:300]}")
                if not began:
                    self._note(f"actors do not start: {error.kind}: {str(error)[-300:]}")
                self._lost(host, error)
            finally:
                with suppress(ValueError):
                    self.hosts.remove(host)
                host.end()
            if began:
                pause = FIRST_PAUSE
            else:
                await asyncio.sleep(pause * uniform(0.7, 1.3))
                pause = min(LONGEST_PAUSE, pause * 2)

    async def _started(self, host: Host) -> bool:
        if not await host.start():
            return False
        self.hosts.append(host)
        self._note(None)
        emit("ray.actor_started", name=host.name, **host.where)
        return True

    def _note(self, why: str | None) -> None:
        """Report why there are no actors. Only the plain pool counts; others may fail for their own reasons."""
        if self.warm and why != self._away:
            self._away = why
            self._context.note_away(mask_secrets(why) if why else None)

    def _record_ended(self, ended: Sequence[Ended]) -> None:
        if ended:
            self.pace.record(len(ended), sum([outcome.elapsed or 0.0 for _, outcome in ended]))
            self._ended(ended)

    def room(self) -> int:
        """How many more runs of the plain shape to claim.

        A long run is measured from when it became the first of its actor, not from when it was assigned.
        """
        now = monotonic()
        longest = max(
            (now - (host.first.first_at or now) for host in self.hosts if host.first is not None), default=0.0
        )
        return self._wanted(longest) - self.held

    def _wanted(self, longest: float) -> int:
        """One run per actor, or for short runs three batches: one is executed, one waits in the actor, one here."""
        if self.pace.mean is None or max(self.pace.mean, longest) >= BATCH_SECONDS:
            return len(self.hosts)
        return BATCHES_PER_ACTOR * len(self.hosts) * self._batch_size()

    def take_back(self, waiting_for: float) -> list[Claim]:
        """Give up runs that have waited this long, or longer if an actor is being started for them."""
        if waiting_for and self._keepers and not self.hosts:
            waiting_for = START_SECONDS
        before = monotonic() - waiting_for
        taken = [one for one in self.waiting if one.given_at <= before]
        for one in taken:
            self.waiting.remove(one)
        return [one.claim for one in taken]

    def _next_batch(self, held: int) -> list[tuple[str, Claim]]:
        """The next runs for an actor that has `held` runs: one if it is idle, or a batch of very short first attempts.

        If an actor dies with a batch, it is unknown which runs had begun. So all of them are handed back, and each is
        executed alone the next time.
        """
        if not self.waiting:
            return []
        most = self._batch_size()
        if held and (most == 1 or held > most or self.waiting[0].claim.number > 1):
            return []
        most = min(most, max(-(-len(self.waiting) // max(1, len(self.hosts))), self._at_least()))
        waiting = self.waiting
        worker_id, first, _ = waiting.popleft()
        batch = [(worker_id, first)]
        while first.number == 1 and len(batch) < most and waiting:
            follower, claim, _ = waiting[0]
            if claim.number > 1 or follower != worker_id:
                break
            waiting.popleft()
            batch.append((worker_id, claim))
        return batch

    def _batch_size(self) -> int:
        """One, unless runs are so short that an actor executes many of them in `BATCH_SECONDS`."""
        mean = self.pace.mean
        if mean is None or mean >= BATCH_SECONDS:
            return 1
        return min(MOST_PER_BATCH, int(BATCH_SECONDS / max(mean, 1e-6)) + 1)

    def _at_least(self) -> int:
        """Runs that are not worth dividing among actors, because together they take less time than a message."""
        return int(MESSAGE_SECONDS / max(self.pace.mean or BATCH_SECONDS, 1e-6))

    async def close(self) -> None:
        keepers = list(self._keepers.values())
        for keeper in keepers:
            keeper.cancel()
        self._keepers.clear()
        await asyncio.gather(*keepers, return_exceptions=True)
