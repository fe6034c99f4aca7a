"""Doorbell over Redis: hints are published on one channel, and workers subscribe to it.

Publishing reaches whoever listens at that moment and leaves nothing behind, which is all that a hint needs. Redis being
away costs waiting time: a bell that could not be sent is lost, and for a while none is tried, so that nobody waits for
a server that does not answer.
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
    """A client that answers or fails within about `seconds`, and connects when it is first used."""
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


class Patience:
    """How long to leave a server alone that did not answer: longer each time, and forgotten when it does answer."""

    def __init__(self, tell: Callable[[BaseException | None], None]) -> None:
        self._tell = tell
        self._failures = 0
        self._until = 0.0
        self._lock = threading.Lock()

    @property
    def exhausted(self) -> bool:
        return monotonic() < self._until

    def failed(self, error: BaseException) -> float:
        """Note a failure; returns how many seconds to wait. Only the first one in a row is told."""
        with self._lock:
            self._failures += 1
            pause = min(LONGEST_PAUSE, 0.5 * 2.0 ** min(self._failures, 10))
            self._until = monotonic() + pause
            first = self._failures == 1
        if first:
            self._tell(error)
        return pause

    def succeeded(self) -> None:
        if self._failures:
            with self._lock:
                self._failures, self._until = 0, 0.0
            self._tell(None)


def warn(error: BaseException | None) -> None:
    """Tell a submitter's log that Redis went away, or came back."""
    if error is None:
        log.warning("Redis answers again")
    else:
        log.warning("Redis does not answer (%s); runs start later, and none is lost", error)


class RedisSend:
    """Publishes hints; what cannot be sent is lost, and never costs the caller more than `IO_SECONDS`."""

    def __init__(self, url: str) -> None:
        self._redis = open_redis(url)
        self._patience = Patience(warn)

    def __call__(self, hints: Iterable[str]) -> None:
        if self._patience.exhausted:
            return
        import redis

        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                for hint in hints:
                    pipeline.publish(CHANNEL, hint)
                pipeline.execute()
        except (redis.RedisError, OSError) as error:
            self._patience.failed(error)
        else:
            self._patience.succeeded()

    def close(self) -> None:
        self._redis.close()


class RedisListener:
    """Hears hints. While the connection is down `live` is False, and the worker looks more often by itself."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._patience = Patience(_tell)
        self.live = False
        open_redis(url).close()

    async def listen(self, heard: Callable[[frozenset[str]], None]) -> None:
        import redis

        while True:
            try:
                await self._hear(heard)
            except (redis.RedisError, OSError, TimeoutError) as error:
                await asyncio.sleep(self._patience.failed(error))
            finally:
                self.live = False

    async def _hear(self, heard: Callable[[frozenset[str]], None]) -> None:
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
            self._patience.succeeded()
            self.live = True
            while True:
                message = await channel.get_message(ignore_subscribe_messages=True, timeout=QUIET_SECONDS)
                if message is None:
                    # A server that is frozen, or gone without a word, keeps silent too.
                    async with asyncio.timeout(2 * IO_SECONDS):
                        await client.ping()
                elif isinstance(message["data"], bytes):
                    # Whatever somebody wrote there: it is compared with names that are known, and nothing else.
                    heard(frozenset([message["data"].decode("utf-8", "replace")]))


def _tell(error: BaseException | None) -> None:
    if error is None:
        emit("listener.back")
    else:
        emit("listener.lost", error=str(error) or type(error).__name__)
