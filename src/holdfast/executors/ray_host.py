"""One actor of a worker, as the worker sees it: what it was given, and the exchange of messages with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

import orjson

from holdfast.domain.errors import HoldfastError
from holdfast.domain.execution import Ended, ExecutorContext
from holdfast.domain.ids import new_id
from holdfast.domain.reasons import LeaseRequest
from holdfast.domain.values import AttemptRef, Claim
from holdfast.executors.channel import received_options
from holdfast.executors.ray_cluster import ActorGone, Cluster
from holdfast.executors.ray_messages import frame, messages_of, received_outcome, sent_claim

if TYPE_CHECKING:
    from holdfast.executors.ray_pool import Shape

# How long an exchange waits for messages of the actor.
POLL_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Flight:
    """One run that an actor was given. It is `first_at` when all runs before it have ended."""

    claim: Claim
    given_at: float = field(default_factory=monotonic)
    first_at: float | None = None
    extended: float = 0.0
    stop: LeaseRequest | None = None
    stop_at: float = 0.0
    described: bool = False


class Host:
    """Gives an actor a batch when it is idle, and carries the notes, questions and results of its runs."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        shape: Shape,
        place: ExecutorContext,
        next_batch: Callable[[int], list[tuple[str, Claim]]],
        ended: Callable[[Sequence[Ended]], None],
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._shape = shape
        self._place = place
        self._next_batch = next_batch
        self._ended = ended
        self._owner = new_id()
        self._messages: list[Any] = []
        self._bell = asyncio.Event()
        self._questions: set[asyncio.Task[None]] = set()
        self._withdrawn = False
        self.flights: dict[AttemptRef, Flight] = {}
        self.where: dict[str, str] = {}
        self.killed = False

    async def start(self) -> bool:
        """Get hold of the actor. False if it is still busy for a worker that is gone."""
        found = await self._cluster.start(self.name, self._shape, self._place, self._owner)
        if found is None or self.killed:
            return False
        self.where = {**found, "ray_address": self._cluster.address}
        return True

    async def work(self, idle_seconds: float | None) -> None:
        """Exchange messages until the actor was idle for so long. If it is gone, raise what Ray says about it."""
        busy_at = monotonic()
        while not self.killed:
            if not self.flights:
                if idle_seconds is not None and monotonic() - busy_at > idle_seconds:
                    return
                await self._wait_for_batch()
            elif self.first is not None and not self.first.described:
                # The next batch is on its way while this one is executed.
                self._give(self._next_batch(len(self.flights)))
            out, self._messages = self._messages, []
            if self.flights:
                busy_at = monotonic()
            wait = POLL_SECONDS if self.flights else 0.0
            data = await self._cluster.exchange(self.name, self._owner, frame(out), wait)
            if data is None:
                raise ActorGone("ActorTaken", f"actor {self.name} belongs to another worker now")
            self._receive(messages_of(data))
        raise ActorGone("ActorEnded", f"actor {self.name} was ended")

    async def _wait_for_batch(self) -> None:
        """Wait for runs, for a poll's time at most: an actor without messages concludes that its worker is gone."""
        batch = self._next_batch(0)
        if not batch:
            self._bell.clear()
            try:
                await asyncio.wait_for(self._bell.wait(), POLL_SECONDS)
            except TimeoutError:
                return
            batch = self._next_batch(0)
        self._withdrawn = False
        self._give(batch)

    def _give(self, batch: Sequence[tuple[str, Claim]]) -> None:
        if batch:
            self.flights.update((claim.ref, Flight(claim)) for _, claim in batch)
            self._messages.append(["give", batch[0][0], [sent_claim(claim) for _, claim in batch]])
            self._mark_first()

    def _mark_first(self) -> None:
        first = next(iter(self.flights.values()), None)
        if first is not None and first.first_at is None:
            first.first_at = monotonic()

    @property
    def first(self) -> Flight | None:
        """The run that the actor is at, unless it executes several at once."""
        return next(iter(self.flights.values()), None)

    def wake(self) -> None:
        self._bell.set()

    def stop(self, ref: AttemptRef, request: LeaseRequest) -> None:
        flight = self.flights.get(ref)
        if flight is not None and flight.stop is None:
            flight.stop, flight.stop_at = request, monotonic()
            self._deliver(["stop", ref.run_id, ref.number, request.reason, request.message])

    def withdraw(self) -> None:
        """Ask for the runs that wait behind the first, which takes longer than expected."""
        if len(self.flights) > 1 and not self._withdrawn:
            self._withdrawn = True
            self._deliver(["withdraw"])

    def end(self) -> None:
        """Kill the actor; `work` then raises."""
        if not self.killed:
            self.killed = True
            self._cluster.kill(self.name)

    def _receive(self, messages: Sequence[Any]) -> None:
        ended = []
        services = self._place.attempt_services
        for message in messages:
            match message:
                case ["ended", run_id, number, outcome]:
                    flight = self.flights.pop(AttemptRef(run_id, number), None)
                    if flight is not None:
                        ended.append(Ended(flight.claim, received_outcome(outcome)))
                case ["progress", ref, report]:
                    services.note_progress(AttemptRef(*ref), report)
                case ["log", ref, level, text]:
                    services.note_log(AttemptRef(*ref), level, text)
                case ["extend", ref, seconds]:
                    flight = self.flights.get(AttemptRef(*ref))
                    if flight is not None:
                        flight.extended += seconds
                case ["ask", question, method, ref, arguments]:
                    task = asyncio.create_task(self._answer(question, method, AttemptRef(*ref), arguments))
                    self._questions.add(task)
                    task.add_done_callback(self._questions.discard)
        self._mark_first()
        self._ended(ended)

    async def _answer(self, question: int, method: str, ref: AttemptRef, arguments: list[Any]) -> None:
        services = self._place.attempt_services
        try:
            match method, arguments:
                case "find_step", [name]:
                    said: Any = await services.find_step(ref, name)
                case "record_step", [name, result]:
                    await services.record_step(ref, name, result)
                    said = None
                case "submit", [task, parameters, options]:
                    said = await services.submit(ref, task, orjson.loads(parameters), received_options(options))
                case "stored_children", []:
                    said = await services.stored_children(ref)
                case _:
                    raise HoldfastError(f"an actor requested {method}, which workers do not provide")
            self._deliver(["answer", question, said])
        except Exception as error:  # noqa: BLE001 - the run that asked gets it
            self._deliver(["refused", question, type(error).__name__, str(error)])

    def _deliver(self, message: Any) -> None:
        """Send a message while an exchange waits. If the actor is gone, that exchange finds out."""
        self._cluster.deliver(self.name, self._owner, frame([message]))
