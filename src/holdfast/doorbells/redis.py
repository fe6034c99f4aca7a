"""Doorbell over Redis: hints are published on one channel, and workers subscribe to it.

Publishing reaches current subscribers and stores nothing, which is all that a hint needs. If Redis is unavailable, runs
start later: a hint that cannot be sent is lost, and for a while no other is tried, so that callers do not wait for a
server that does not respond.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

from holdfast.domain.errors import ConfigurationError
from holdfast.observe import emit

CHANNEL = "holdfast"
IO_SECONDS = 0.5
QUIET_SECONDS = 5.0
LONGEST_PAUSE = 30.0

log = logging.getLogger("holdfast.doorbell")


def open_redis(url: str, seconds: float = IO_SECONDS, **options: Any) -> Any:
    """Return a client whose calls succeed or fail within about `seconds`. It connects on first use."""
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise ConfigurationError("a Redis doorbell needs the extra `rq`: pip install 'holdfast[rq]'") from error
    try:
        return redis.Redis.from_url(
            url, socket_connect_timeout=seconds, socket_timeout=seconds, retry=Retry(NoBackoff(), 0), **options
        )
    except ValueError as error:
        raise ConfigurationError(f"HOLDFAST_REDIS_URL cannot be used: {error}") from error


class Backoff:
    """How long not to contact a server that did not respond: longer after each failure, reset by a success."""

    def __init__(self, report: Callable[[BaseException | None], None]) -> None:
        self._report = report
        self._failures = 0
        self._until = 0.0
        self._lock = threading.Lock()

    @property
    def active(self) -> bool:
        return monotonic() < self._until

    def failed(self, error: BaseException) -> float:
        """Record a failure and return how many seconds to wait. Only the first of several in a row is reported."""
        with self._lock:
            self._failures += 1
            pause = min(LONGEST_PAUSE, 0.5 * 2.0 ** min(self._failures, 10))
            self._until = monotonic() + pause
            first = self._failures == 1
        if first:
            self._report(error)
        return pause

    def succeeded(self) -> None:
        if self._failures:
            with self._lock:
                self._failures, self._until = 0, 0.0
            self._report(None)


def warn(error: BaseException | None) -> None:
    """Log in a submitting process that Redis is unavailable, or available again."""
    if error is None:
        log.warning("Redis responds again")
    else:
        log.warning("Redis does not respond (%s); runs start later, and none is lost", error)


class RedisSend:
    """Publishes hints. A hint that cannot be sent is lost, and delays the caller by at most `IO_SECONDS`."""

    def __init__(self, url: str) -> None:
        self._redis = open_redis(url)
        self._backoff = Backoff(warn)

    def __call__(self, hints: Iterable[str]) -> None:
        if self._backoff.active:
            return
        import redis

        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                for hint in hints:
                    pipeline.publish(CHANNEL, hint)
                pipeline.execute()
        except (redis.RedisError, OSError) as error:
            self._backoff.failed(error)
        else:
            self._backoff.succeeded()

    def close(self) -> None:
        self._redis.close()


class RedisListener:
    """Receives hints. While the connection is down, `live` is False and the worker polls more often."""

    address = None

    def __init__(self, url: str) -> None:
        self._url = url
        self._backoff = Backoff(_report)
        self.live = False
        open_redis(url).close()

    async def listen(self, on_hints: Callable[[frozenset[str]], None]) -> None:
        import redis

        while True:
            try:
                await self._receive(on_hints)
            except (redis.RedisError, OSError, TimeoutError) as error:
                await asyncio.sleep(self._backoff.failed(error))
            finally:
                self.live = False

    async def _receive(self, on_hints: Callable[[frozenset[str]], None]) -> None:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        async with contextlib.AsyncExitStack() as stack:
            client: Any = Redis.from_url(
                self._url, socket_connect_timeout=IO_SECONDS, socket_keepalive=True, retry=Retry(NoBackoff(), 0)
            )
            stack.push_async_callback(client.aclose)
            channel = client.pubsub(ignore_subscribe_messages=True)
            stack.push_async_callback(channel.aclose)
            async with asyncio.timeout(2 * IO_SECONDS):
                await channel.subscribe(CHANNEL)
            self._backoff.succeeded()
            self.live = True
            while True:
                message = await channel.get_message(ignore_subscribe_messages=True, timeout=QUIET_SECONDS)
                if message is None:
                    # A server that is frozen or unreachable sends nothing either.
                    async with asyncio.timeout(2 * IO_SECONDS):
                        await client.ping()
                elif isinstance(message["data"], bytes):
                    # Any client of Redis may publish here: the text is only compared with known names.
                    on_hints(frozenset([message["data"].decode("utf-8", "replace")]))


def _report(error: BaseException | None) -> None:
    if error is None:
        emit("listener.back")
    else:
        emit("listener.lost", error=str(error) or type(error).__name__)
