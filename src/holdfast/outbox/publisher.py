"""The publisher: fans events out and sends deliveries, a few subscriptions at a time.

Every process that does upkeep may have one. A slow receiver delays only its own subscription, and occupies one of the
concurrent senders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import random
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar

from holdfast.domain.ids import new_id
from holdfast.observe import emit
from holdfast.ops import outbox
from holdfast.outbox.responses import GONE, Answer, readable
from holdfast.outbox.stream import StreamSink
from holdfast.outbox.webhook import WebhookSink
from holdfast.processes.threads import in_thread
from holdfast.runtime.settings import Settings
from holdfast.sql.deliveries import Delivery, Held, Try
from holdfast.sql.statement import Op

T = TypeVar("T")

CONCURRENCY = 4
ROUND_SECONDS = 10.0
TAKEN_AT_ONCE = 500


class Transact(Protocol):
    """Runs an operation in a transaction on the publisher's connection."""

    def __call__(self, make_op: Callable[[], Op[T]], /) -> Awaitable[T]: ...


class Sink(Protocol):
    """Sends deliveries. `send` blocks and is called in a thread; it sends up to `batch` deliveries, all or none."""

    batch: int
    keep: bool

    def send(self, held: Held, deliveries: Sequence[Delivery]) -> Answer: ...

    def delay(self, attempts: int, answer: Answer, random: float) -> float | None:
        """Return the seconds until the next attempt; None to give up."""

    def close(self) -> None: ...


class Taken(NamedTuple):
    """A held subscription, and the deliveries to be sent to it."""

    holder: str
    held: Held
    deliveries: list[Delivery]


class Publisher:
    """Sends due deliveries. `sinks` are by kind of subscription."""

    def __init__(self, settings: Settings) -> None:
        self._sinks: Mapping[str, Sink] = {"redis": StreamSink(settings), "webhook": WebhookSink(settings)}
        self._days = settings.delivery_days
        # Longer than it may take to resolve a name and receive a response.
        self._hold_seconds = settings.webhook_seconds * 2 + 30.0
        self._round: asyncio.Task[int] | None = None

    def start_round(self, transact: Transact) -> None:
        """Send all due deliveries in the background, unless that is already in progress."""
        if self._round is None or self._round.done():
            self._round = asyncio.get_running_loop().create_task(self._attempt_round(transact))

    async def _attempt_round(self, transact: Transact) -> int:
        try:
            return await self.publish(transact)
        except Exception as error:  # noqa: BLE001 - the database may fail in any way; the next round tries again
            emit("outbox.postponed", error=f"{type(error).__name__}: {error}")
            return 0

    async def publish(self, transact: Transact) -> int:
        """Fan out, and send due deliveries for a bounded time. Return how many were delivered."""
        ends = monotonic() + ROUND_SECONDS
        while await transact(outbox.fan_out) >= outbox.FANNED_OUT_AT_ONCE and monotonic() < ends:
            continue
        taken = await self._take(transact)
        if taken is None:
            return 0
        others = [self._serve(transact, ends, None) for _ in range(CONCURRENCY - 1)]
        return sum(await asyncio.gather(self._serve(transact, ends, taken), *others))

    async def _take(self, transact: Transact) -> Taken | None:
        holder = new_id()
        found = await transact(lambda: outbox.hold(holder, self._hold_seconds, TAKEN_AT_ONCE))
        return Taken(holder, *found) if found else None

    async def _serve(self, transact: Transact, ends: float, first: Taken | None) -> int:
        """Serve one subscription after another until none is left or the time is over."""
        arrived = 0
        taken = first or await self._take(transact)
        while taken is not None:
            arrived += await self._deliver(transact, taken, ends)
            await transact(partial(outbox.release, taken.holder, taken.held.id))
            taken = await self._take(transact) if monotonic() < ends else None
        return arrived

    async def _deliver(self, transact: Transact, taken: Taken, ends: float) -> int:
        """Send these in order, until one fails, the hold is lost, or the time is over."""
        sink = self._sinks[taken.held.kind]
        arrived = 0
        for start in range(0, len(taken.deliveries), sink.batch):
            if start and monotonic() >= ends:
                break
            batch = taken.deliveries[start : start + sink.batch]
            began = monotonic()
            answer = await in_thread(partial(sink.send, taken.held, batch))
            tried = Try(monotonic() - began, answer.code, readable(answer.error) if answer.error else None)
            self._log(taken.held, batch, tried)
            if not await transact(partial(self._settle, taken, sink, batch, answer, tried)):
                break
            arrived += len(batch)
        return arrived

    def _settle(self, taken: Taken, sink: Sink, batch: Sequence[Delivery], answer: Answer, tried: Try) -> Op[bool]:
        """Record the result of a response. Return True if the next delivery may be sent."""
        holder, held, head = taken.holder, taken.held, batch[0]
        if answer.ok:
            ids = [delivery.id for delivery in batch]
            return (yield from outbox.delivered(holder, ids, tried, keep=sink.keep, hold_seconds=self._hold_seconds))
        delay = sink.delay(head.attempts, answer, random())
        if answer.code == GONE:
            yield from outbox.pause_undelivered(holder, held, head, tried, "the receiver responded with 410 Gone")
        elif delay is None:
            reason = f"delivery {head.id} failed {head.attempts + 1} times, most recently with: {tried.error}"
            yield from outbox.give_up(holder, held, head, tried, reason)
        else:
            yield from outbox.put_off(holder, head, tried, delay)
        return False

    def _log(self, held: Held, batch: Sequence[Delivery], tried: Try) -> None:
        emit(
            "delivery.failed" if tried.error else "delivery.made",
            subscription=held.name,
            event_id=batch[0].event_id,
            run_id=batch[0].run_id,
            events=len(batch),
            code=tried.code,
            seconds=tried.seconds,
            **({"error": tried.error} if tried.error else {}),
        )

    async def forget(self, transact: Transact) -> int:
        """Delete deliveries past their retention."""
        return await transact(lambda: outbox.forget_deliveries(self._days))

    async def close(self) -> None:
        """Stop. Another publisher may repeat a delivery in progress once the hold has expired."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)
        for sink in self._sinks.values():
            sink.close()
