"""Streams: answers that stay open. Each holds a thread of the server, so there is room for only so many."""

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
    """Counts what stays open, and says when the server wants to end."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.open = 0
        self.closing = False
        self._lock = threading.Lock()

    def require(self, detail: str) -> None:
        """Take a place, or refuse the request."""
        if not self.enter():
            raise Refusal("too-many-streams", f"{self.room} {detail}", headers={"Retry-After": "5"})

    def enter(self) -> bool:
        """Take a place, if there is one."""
        with self._lock:
            if self.open >= self.room or self.closing:
                return False
            self.open += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self.open -= 1


class Chunk(NamedTuple):
    """What a feed has for its reader: items with rising numbers, and the run's status if no more can come.

    `more` means that there was not room for all that is there already.
    """

    items: Sequence[tuple[int, dict[str, Any]]]
    end: str | None
    more: bool = False


Feed = Callable[[int], Chunk]

NOTHING = Chunk((), None)


def event_stream(call: Call, run_id: str, feed: Feed, last: int) -> Answer:
    """Answer with server-sent events: what `feed` has after item `last`, and what comes while the stream is open.

    The first items are read before the answer starts, so that a run that does not exist is still a 404.
    """
    streams = call.service.streams
    streams.require("streams are open, which is all there is room for. Poll instead, or come back later.")
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
    # Kept apart from the wakes: a run that reports progress wakes the watch and often has nothing to send, and only
    # what is sent tells that nobody reads any more.
    beats_at = monotonic() + _beat()
    pause = HEARTBEAT
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    with call.service.hub.watch(run_id) as watch:
        call.on_leave(watch.abandon)
        while True:
            for number, item in chunk.items:
                last = number
                yield b"id: %d\ndata: %s\n\n" % (number, orjson.dumps(item))
                beats_at = monotonic() + _beat()
            if chunk.end is not None:
                yield b"id: %d\nevent: end\ndata: %s\n\n" % (last, orjson.dumps({"status": chunk.end}))
                return
            if not chunk.more:
                watch.wait(max(min(pause, beats_at - monotonic(), closes_at - monotonic()), 0.01))
            if monotonic() >= beats_at:
                yield b": still here\n\n"
                beats_at = monotonic() + _beat()
            if watch.abandoned or streams.closing or monotonic() >= closes_at:
                return
            chunk, pause = _next(feed, last)


def _beat() -> float:
    """Seconds until the next sign of life. Streams that were opened together do not all look together for ever."""
    return HEARTBEAT * uniform(0.3, 1.0)


def _next(feed: Feed, last: int) -> tuple[Chunk, float]:
    """What has come since, and when to look again at the latest. A stream outlives a database that is away."""
    try:
        return feed(last), HEARTBEAT
    except DatabaseUnreachable:
        return NOTHING, AFTER_FAILURE
    except RunNotFound:
        return Chunk((), "PRUNED"), HEARTBEAT
