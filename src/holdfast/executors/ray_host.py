"""The worker's side of one actor: the runs assigned to it, and the exchange of messages with it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import orjson

from holdfast.domain.errors import HoldfastError
from holdfast.domain.execution import Ended, ExecutorContext
from holdfast.domain.ids import new_id
from holdfast.domain.reasons import LeaseRequest
from holdfast.domain.settling import Succeeded
from holdfast.domain.values import AttemptRef, Claim
from holdfast.executors.channel import received_options
from holdfast.executors.ray_cluster import ActorGone, Cluster
from holdfast.executors.ray_messages import frame, messages_of, received_outcome, sent_claim

if TYPE_CHECKING:
    from holdfast.executors.ray_pool import Shape

# How long an exchange waits for messages from the actor.
POLL_SECONDS = 1.0
# How many exchanges are under way at most. One that returns the results of several batches leaves the others without.
MOST_EXCHANGES = 2


@dataclass(eq=False, slots=True)
class Assigned:
    """A run assigned to an actor. `first_at` is when all runs before it had ended."""

    claim: Claim
    given_at: float
    first_at: float | None = None
    extended: float = 0.0
    stop: LeaseRequest | None = None
    stop_at: float = 0.0
    described: bool = False


class Host:
    """Assigns batches to an actor, and handles the notes, questions and results of its runs."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        shape: Shape,
        context: ExecutorContext,
        next_batch: Callable[[int], list[tuple[str, Claim]]],
        ended: Callable[[Sequence[Ended]], None],
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._shape = shape
        self._context = context
        self._next_batch = next_batch
        self._ended = ended
        self._owner = new_id()
        self._messages: list[Any] = []
        self._bell = asyncio.Event()
        self._questions: set[asyncio.Task[None]] = set()
        self._withdrawn = False
        self._exchanges: deque[asyncio.Future[bytes | None]] = deque()
        self.assigned: dict[tuple[str, int], Assigned] = {}
        self.where: dict[str, str] = {}
        self.killed = False

    async def start(self) -> bool:
        """Start or take over the actor. Return False if it is still busy with the runs of a dead worker."""
        found = await self._cluster.start(self.name, self._shape, self._context, self._owner)
        if found is None or self.killed:
            return False
        self.where = {**found, "ray_address": self._cluster.address}
        return True

    async def work(self, idle_seconds: float | None) -> None:
        """Exchange messages until the actor has been idle for this long. Raise Ray's error if the actor is gone."""
        try:
            await self._work(idle_seconds)
        finally:
            for exchange in self._exchanges:
                exchange.cancel()
            await asyncio.gather(*self._exchanges, return_exceptions=True)

    async def _work(self, idle_seconds: float | None) -> None:
        busy_at = monotonic()
        while not self.killed:
            if not self.assigned and not self._exchanges:
                if idle_seconds is not None and monotonic() - busy_at > idle_seconds:
                    return
                await self._wait_for_batch()
            else:
                self._give_more()
            if self.assigned:
                busy_at = monotonic()
            if not self._exchanges:
                self._exchange()
            data = await self._exchanges[0]
            self._exchanges.popleft()
            if data is None:
                raise ActorGone("ActorTaken", f"actor {self.name} belongs to another worker now")
            self._receive(messages_of(data))
        raise ActorGone("ActorEnded", f"actor {self.name} was stopped")

    def _exchange(self) -> None:
        """Send the messages. The actor answers its exchanges in order, each when it has something to report."""
        out, self._messages = self._messages, []
        wait = POLL_SECONDS if self.assigned else 0.0
        self._exchanges.append(self._cluster.exchange(self.name, self._owner, frame(out), wait))

    async def _wait_for_batch(self) -> None:
        """Wait for runs, at most for a poll interval: an actor without messages assumes that its worker is gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                # Runs that arrive wake all actors, and others may have taken them.
                while not (batch := self._next_batch(0)):
                    self._bell.clear()
                    await self._bell.wait()
            self._give(batch)

    def _give(self, batch: Sequence[tuple[str, Claim]]) -> None:
        if batch:
            self._withdrawn = False
            now = monotonic()
            self.assigned.update([((claim.run_id, claim.number), Assigned(claim, now)) for _, claim in batch])
            message = ["give", batch[0][0], [sent_claim(claim) for _, claim in batch]]
            if len(self._exchanges) < MOST_EXCHANGES:
                # It travels with an exchange of its own, which returns its results: one call of Ray for each batch.
                self._messages.append(message)
                self._exchange()
            else:
                self._deliver(message)
            self._mark_first()

    def _give_more(self) -> None:
        """Have the next batch in the actor while it executes one, unless its run takes long."""
        if self.first is None or not self.first.described:
            self._give(self._next_batch(len(self.assigned)))

    def _mark_first(self) -> None:
        first = next(iter(self.assigned.values()), None)
        if first is not None and first.first_at is None:
            first.first_at = monotonic()

    @property
    def first(self) -> Assigned | None:
        """The run that the actor is executing, unless it executes several at once."""
        return next(iter(self.assigned.values()), None)

    def wake(self) -> None:
        """Get a batch if there is one: runs have arrived."""
        self._bell.set()
        if self._exchanges and not self._exchanges[0].done():  # otherwise, the actor may be gone
            self._give_more()

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        assigned_run = self.assigned.get(ref)
        if assigned_run is not None and assigned_run.stop is None:
            assigned_run.stop, assigned_run.stop_at = request, monotonic()
            self._deliver(["stop", ref.run_id, ref.number, request.reason, request.message])

    def withdraw(self) -> None:
        """Take back the runs that wait behind the first one, which takes longer than expected."""
        if len(self.assigned) > 1 and not self._withdrawn:
            self._withdrawn = True
            self._deliver(["withdraw"])

    def end(self) -> None:
        """Kill the actor; `work` then raises."""
        if not self.killed:
            self.killed = True
            self._cluster.kill(self.name)

    def _receive(self, messages: Sequence[Any]) -> None:
        ended = []
        services = self._context.attempt_services
        for message in messages:
            match message:
                case ["done", attempts]:
                    for run_id, number, result, elapsed in attempts:
                        assigned_run = self.assigned.pop((run_id, number), None)
                        if assigned_run is not None:
                            outcome = tuple.__new__(Succeeded, (result, None, elapsed, ()))
                            ended.append(tuple.__new__(Ended, (assigned_run.claim, outcome)))
                case ["ended", run_id, number, outcome]:
                    assigned_run = self.assigned.pop((run_id, number), None)
                    if assigned_run is not None:
                        ended.append(Ended(assigned_run.claim, received_outcome(outcome)))
                case ["progress", ref, report]:
                    services.note_progress(AttemptRef(*ref), report)
                case ["log", ref, level, text]:
                    services.note_log(AttemptRef(*ref), level, text)
                case ["extend", ref, seconds]:
                    assigned_run = self.assigned.get(AttemptRef(*ref))
                    if assigned_run is not None:
                        assigned_run.extended += seconds
                case ["ask", question, method, ref, arguments]:
                    task = asyncio.create_task(self._answer(question, method, AttemptRef(*ref), arguments))
                    self._questions.add(task)
                    task.add_done_callback(self._questions.discard)
        self._mark_first()
        self._ended(ended)

    async def _answer(self, question: int, method: str, ref: AttemptRef, arguments: list[Any]) -> None:
        services = self._context.attempt_services
        try:
            match method, arguments:
                case "find_step", [name]:
                    answer: Any = await services.find_step(ref, name)
                case "record_step", [name, result]:
                    await services.record_step(ref, name, result)
                    answer = None
                case "submit", [task, parameters, options]:
                    answer = await services.submit(ref, task, orjson.loads(parameters), received_options(options))
                case "stored_children", []:
                    answer = await services.stored_children(ref)
                case _:
                    raise HoldfastError(f"an actor requested {method}, which workers do not provide")
            self._deliver(["answer", question, answer])
        except Exception as error:  # noqa: BLE001 - returned to the run that asked
            self._deliver(["refused", question, type(error).__name__, str(error)])

    def _deliver(self, message: Any) -> None:
        """Send a message during an exchange. If the actor is gone, the exchange raises."""
        self._cluster.deliver(self.name, self._owner, frame([message]))
