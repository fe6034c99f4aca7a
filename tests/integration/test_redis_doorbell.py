"""The Redis doorbell shortens the wait; if Redis is down, suspended or sends garbage, nothing else changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

from holdfast import AsyncClient, Client
from holdfast.domain.errors import ConfigurationError
from holdfast.doorbells.bell import BackgroundBell, CoalescingBell
from holdfast.doorbells.redis import CHANNEL, RedisListener, RedisSend, open_redis
from holdfast.runtime.settings import Settings, load
from tests.integration.redis_support import RedisServer
from tests.integration.worker_support import eventually

pytestmark = pytest.mark.redis

WITHIN = 30.0


class ReceivedHints:
    """The hints that a listener has received."""

    def __init__(self) -> None:
        self.hints: list[str] = []
        self._changed = asyncio.Event()

    def __call__(self, hints: frozenset[str]) -> None:
        self.hints += hints
        self._changed.set()

    async def expect(self, hint: str, ring: Callable[[], object]) -> None:
        """Ring until this hint is received."""
        async with asyncio.timeout(WITHIN):
            while hint not in self.hints:
                await asyncio.to_thread(ring)
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await self._changed.wait()


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[tuple[RedisListener, ReceivedHints]]:
    listener, received = RedisListener(url), ReceivedHints()
    task = asyncio.create_task(listener.listen(received))
    try:
        await asyncio.to_thread(eventually, lambda: listener.live)
        yield listener, received
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_hint_is_received(redis_url: str) -> None:
    async with listening(redis_url) as (_, received):
        send = RedisSend(redis_url)
        await received.expect("models", lambda: send(["models", "stop:x"]))
        assert "stop:x" in received.hints
        send.close()


async def test_listener_reconnects_after_a_redis_restart(own_redis: RedisServer) -> None:
    async with listening(own_redis.url) as (listener, received):
        own_redis.kill()
        await asyncio.to_thread(eventually, lambda: not listener.live)
        own_redis.start()
        send = RedisSend(own_redis.url)
        await received.expect("models", lambda: send(["models"]))
        send.close()


async def test_a_listener_notices_that_redis_is_frozen(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.doorbells.redis.QUIET_SECONDS", 0.2)
    async with listening(own_redis.url) as (listener, _):
        own_redis.freeze()
        await asyncio.to_thread(eventually, lambda: not listener.live)
        own_redis.thaw()


async def test_published_text_is_only_compared_with_names(redis_url: str) -> None:
    async with listening(redis_url) as (_, received):
        with redis.Redis.from_url(redis_url) as client:
            client.publish(CHANNEL, b"\xff\x00" * 1000)
            client.publish(CHANNEL, b"")
            await received.expect("last", lambda: client.publish(CHANNEL, "last"))
        assert all(isinstance(hint, str) for hint in received.hints)


@pytest.mark.parametrize("state", ["killed", "frozen"])
def test_submit_does_not_wait_for_unreachable_redis(
    database_url: str, own_redis: RedisServer, tmp_path: Path, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    (own_redis.kill if state == "killed" else own_redis.freeze)()
    caplog.set_level(logging.WARNING, "holdfast.doorbell")
    for doorbell in ("redis", "rq"):
        caplog.clear()
        settings = Settings(database_url=database_url, redis_url=own_redis.url, doorbell=doorbell)
        with Client(settings) as client:
            runs = [client.submit("mock", {"steps": number + 1}) for number in range(20)]
            assert all(client.get(run).status == "PENDING" for run in runs)
        away = [record for record in caplog.records if "does not respond" in record.getMessage()]
        # One warning for the hints, and with rq one for the messages: further failures are not logged.
        assert 1 <= len(away) <= 2
    if state == "frozen":
        own_redis.thaw()


@pytest.mark.parametrize("state", [("maxmemory", "1"), ("min-replicas-to-write", "1")], ids=["full", "read-only"])
def test_redis_that_rejects_writes_does_not_prevent_a_submit(
    database_url: str, own_redis: RedisServer, state: tuple[str, str]
) -> None:
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set(*state)
    settings = Settings(database_url=database_url, redis_url=own_redis.url, doorbell="rq")
    with Client(settings) as client:
        assert client.submit("mock", {"steps": 1}).status == "PENDING"


async def test_an_asynchronous_client_rings_without_waiting(database_url: str, redis_url: str) -> None:
    settings = Settings(database_url=database_url, redis_url=redis_url, doorbell="rq")
    async with AsyncClient(settings) as client:
        run = await client.submit("mock", {"steps": 1})
    with redis.Redis.from_url(redis_url) as looking:
        assert looking.lrange("rq:queue:default", 0, -1) == [f"{run.id}-1".encode()]


def test_background_bell_sends_all_hints_before_it_closes() -> None:
    sent: list[str] = []
    bell = BackgroundBell(CoalescingBell(sent.extend))
    for number in range(50):
        bell.ring([f"queue-{number}"])
    bell.close()
    assert len(sent) == 50


def test_redis_client_responds_or_fails_within_its_timeout(own_redis: RedisServer) -> None:
    own_redis.freeze()
    client = open_redis(own_redis.url, seconds=0.2)
    with pytest.raises(redis.TimeoutError):
        client.ping()
    client.close()
    own_redis.thaw()


def test_doorbell_setting_without_redis_prevents_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_REDIS_URL"):
        load({"HOLDFAST_DOORBELL": "rq"}, tmp_path)
    with pytest.raises(ConfigurationError):
        open_redis("http://nowhere")
