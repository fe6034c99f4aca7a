"""Both ends of a driver, without Ray: the order of its requests, and requests without an answer."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from holdfast.executors.ray_cluster import RayGone
from holdfast.executors.ray_driver import RayDriver, packed
from holdfast.raycore.driver import Driver


class Method:
    """A method of an actor, which notes its calls."""

    def __init__(self, calls: list[tuple[str, bytes]], name: str) -> None:
        self._calls = calls
        self._name = name

    def remote(self, owner: str, data: bytes, wait: float = 0.0) -> asyncio.Future[bytes]:
        self._calls.append((self._name, data))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer.set_result(b"")
        return answer


class Actor:
    """An actor, which notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self.exchange = Method(self.calls, "exchange")
        self.deliver = Method(self.calls, "deliver")


async def test_messages_reach_an_actor_in_the_order_in_which_they_were_sent() -> None:
    """Otherwise a request to stop a run could arrive before the run."""
    actor = Actor()
    answers: list[bytes] = []
    driver = Driver("", answers.append)
    driver._actors["a"] = actor
    reader = asyncio.StreamReader()
    for number in range(3):
        reader.feed_data(packed([number, "exchange", "a", "worker", 1.0], b"give %d" % number))
        reader.feed_data(packed([None, "deliver", "a", "worker"], b"stop %d" % number))
    reader.feed_eof()
    await driver.serve(reader)
    async with asyncio.timeout(20):
        while len(actor.calls) < 6 or len(answers) < 3:  # noqa: ASYNC110 - conditions of a test
            await asyncio.sleep(0)
    assert actor.calls == [
        (method, data % number)
        for number in range(3)
        for method, data in (("exchange", b"give %d"), ("deliver", b"stop %d"))
    ]


async def test_answered_and_cancelled_requests_are_forgotten() -> None:
    driver = RayDriver("127.0.0.1:1", 1.0, {})
    exchange = partial(driver.exchange, "a", "worker", b"", 1.0)
    answered, cancelled, pending = exchange(), exchange(), exchange()
    driver._answered([0, "bytes"], b"answer")
    cancelled.cancel()
    assert await answered == b"answer"
    await asyncio.sleep(0)
    assert list(driver._asked.values()) == [pending]
    driver._answered([1, "bytes"], b"late")


async def test_request_to_a_driver_that_is_gone_fails() -> None:
    driver: Any = RayDriver("127.0.0.1:1", 1.0, {})
    driver.gone.set()
    async with asyncio.timeout(20):
        with pytest.raises(RayGone):
            await driver.exchange("a", "worker", b"", 1.0)
    await asyncio.sleep(0)
    assert not driver._asked
