"""Streams: answers that stay open. Each occupies a thread of the server, so their number is limited."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from holdfast.domain.errors import DatabaseUnreachable, RunNotFound
from holdfast.http.answers import Answer, nothing
from holdfast.http.problems import Refusal

if TYPE_CHECKING:
    from holdfast.http.call import Call

HEARTBEAT = 15.0
LIFETIME = 300.0
AFTER_FAILURE = 1.0
RETRY_MILLISECONDS = 2000


class Streams:
    """Counts open streams, and knows whether the server is shutting down."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.open = 0
        self.closing = False
        self._lock = threading.Lock()

    def require(self, detail: str) -> None:
        """Reserve a stream, or refuse the request."""
        if not self.enter():
            raise Refusal("too-many-streams", f"{self.room} {detail}", headers={"Retry-After": "5"})

    def enter(self) -> bool:
        """Reserve a stream, if the limit allows."""
        with self._lock:
            if self.open >= self.room or self.closing:
                return False
            self.open += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self.open -= 1


class Chunk(NamedTuple):
    """What a feed returns: items with increasing numbers, and the run's status if there will be no more items.

    `more` means that further items can be read immediately.
    """

    items: Sequence[tuple[int, dict[str, Any]]]
    end: str | None
    more: bool = False


Feed = Callable[[int], Chunk]

NOTHING = Chunk((), None)


def event_stream(call: Call, run_id: str, feed: Feed, last: int) -> Answer:
    """Answer with server-sent events: what `feed` has after item `last`, and what is added while the stream is open.

    The first items are read before the response starts, so that a run that does not exist is still a 404.
    """
    streams = call.service.streams
    streams.require("streams are open, which is the limit. Poll instead, or try again later.")
    try:
        first = feed(last)
        if first.end is not None and not first.items and last:
            streams.leave()
            return nothing(204)
        answer = Answer(
            _written(call, run_id, feed, first, last),
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            kind="text/event-stream; charset=utf-8",
        )
    except BaseException:
        streams.leave()
        raise
    answer.on_close = streams.leave
    return answer


def _written(call: Call, run_id: str, feed: Feed, chunk: Chunk, last: int) -> Iterator[bytes]:
    streams = call.service.streams
    closes_at = monotonic() + LIFETIME
    # Independent of wake-ups: a run that reports progress often wakes the watch without anything to send, and a
    # disconnected client is detected only by sending something.
    keep_alive_at = monotonic() + _keep_alive_delay()
    pause = HEARTBEAT
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    with call.service.hub.watch(run_id) as watch:
        call.on_leave(watch.abandon)
        while True:
            for number, item in chunk.items:
                last = number
                yield b"id: %d\ndata: %s\n\n" % (number, orjson.dumps(item))
                keep_alive_at = monotonic() + _keep_alive_delay()
            if chunk.end is not None:
                yield b"id: %d\nevent: end\ndata: %s\n\n" % (last, orjson.dumps({"status": chunk.end}))
                return
            if not chunk.more:
                watch.wait(max(min(pause, keep_alive_at - monotonic(), closes_at - monotonic()), 0.01))
            if monotonic() >= keep_alive_at:
                yield b": still here\n\n"
                keep_alive_at = monotonic() + _keep_alive_delay()
            if watch.abandoned or streams.closing or monotonic() >= closes_at:
                return
            chunk, pause = _next(feed, last)


def _keep_alive_delay() -> float:
    """Seconds until the next keep-alive. Jitter spreads streams that were opened at the same time."""
    return HEARTBEAT * uniform(0.3, 1.0)


def _next(feed: Feed, last: int) -> tuple[Chunk, float]:
    """New items, and the longest time until the next check. A stream survives a database outage."""
    try:
        return feed(last), HEARTBEAT
    except DatabaseUnreachable:
        return NOTHING, AFTER_FAILURE
    except RunNotFound:
        return Chunk((), "PRUNED"), HEARTBEAT
