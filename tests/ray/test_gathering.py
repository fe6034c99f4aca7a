"""The executor inside an actor: results of short runs are gathered, and never wait for a run that takes long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import raycore, task
from holdfast.domain.execution import Ended
from holdfast.domain.settling import Stopped, Succeeded
from holdfast.domain.values import Claim, StoredResult
from holdfast.executors.ray_host import Host
from holdfast.executors.ray_messages import frame, messages_of
from holdfast.executors.ray_pool import MOST_PER_BATCH, PLAIN
from holdfast.raycore import RunHost, _Inline
from tests.ray.actors import FakeCluster, claim_of, context_of

STORED = StoredResult("ref", 3, "00")

released = threading.Event()


@task("ray.wait_until_released")
def wait_until_released() -> None:
    assert released.wait(20)


@task("ray.nothing")
def nothing() -> None:
    """Return at once."""


async def opened(report: Any) -> _Inline:
    executor = _Inline(lambda *message: None)
    await executor.open(context_of([])._replace(report=report))
    return executor


async def test_a_result_is_reported_while_the_next_run_of_its_batch_takes_long() -> None:
    first = asyncio.Event()
    ended: list[Ended] = []

    def report(some: Sequence[Ended]) -> None:
        ended.extend(some)
        first.set()

    executor = await opened(report)
    released.clear()
    names = {"short": "ray.nothing", "long": "ray.wait_until_released", "last": "ray.nothing"}
    executor.give("worker", [claim_of(name, task=task) for name, task in names.items()])
    async with asyncio.timeout(20):
        await first.wait()
        assert [one.claim.run_id for one in ended] == ["short"]
        released.set()
        while executor.busy:
            first.clear()
            await first.wait()
    assert [one.claim.run_id for one in ended] == list(names)
    await executor.close()


async def test_actor_reports_plain_successes_in_one_message_and_other_outcomes_separately() -> None:
    actor = RunHost.__new__(RunHost)
    actor._out, actor._ready = [], asyncio.Event()
    outcomes = [Succeeded("1", None, 0.5), Succeeded("2", None, 0.25), Stopped(1.5), Succeeded(None, STORED, 2.0)]
    claims = [claim_of(f"run-{number}") for number in range(len(outcomes))]
    actor._report([Ended(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)])
    assert actor._ready.is_set()
    assert sorted(message[0] for message in actor._out) == ["done", "ended", "ended"]
    received: list[Ended] = []
    nothing_left: list[tuple[str, Claim]] = []
    host = Host(FakeCluster(), "actor", PLAIN, context_of([]), lambda held: nothing_left, received.extend)
    host._give([("worker", claim) for claim in claims])
    host._receive(messages_of(frame(actor._out)))
    assert not host.assigned
    assert {(one.claim, one.outcome) for one in received} == set(zip(claims, outcomes, strict=True))


async def test_results_of_a_batch_are_reported_together_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raycore, "GATHER_SECONDS", 60.0)
    reports: list[int] = []
    done = asyncio.Event()

    def report(some: Sequence[Ended]) -> None:
        reports.append(len(some))
        if sum(reports) == 200:
            done.set()

    executor = await opened(report)
    executor.give("worker", [claim_of(f"run-{number}", task="ray.nothing") for number in range(200)])
    async with asyncio.timeout(20):
        await done.wait()
    assert reports == [200]
    await executor.close()


async def test_results_of_a_batch_are_reported_while_the_next_one_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raycore, "GATHER_SECONDS", 60.0)
    batch = asyncio.Event()
    ended: list[Ended] = []

    def report(some: Sequence[Ended]) -> None:
        ended.extend(some)
        batch.set()

    executor = await opened(report)
    released.clear()
    executor.give("worker", [claim_of(f"run-{number}", task="ray.nothing") for number in range(MOST_PER_BATCH)])
    executor.give("worker", [claim_of("long", task="ray.wait_until_released")])
    async with asyncio.timeout(20):
        while len(ended) < MOST_PER_BATCH:
            batch.clear()
            await batch.wait()
        released.set()
        while executor.busy:
            batch.clear()
            await batch.wait()
    assert ended[-1].claim.run_id == "long"
    await executor.close()


async def test_calls_of_an_actor_are_answered_in_order() -> None:
    actor = RunHost.__new__(RunHost)
    actor._owner, actor._executor = "worker", await opened(lambda some: None)
    actor._out, actor._ready, actor._turn, actor._gathering = [], asyncio.Event(), asyncio.Lock(), None
    calls = [asyncio.create_task(actor.exchange("worker", frame([]), 20.0)) for _ in range(2)]
    for number, call in enumerate(calls):
        await asyncio.sleep(0.01)
        assert not any(one.done() for one in calls[number:])
        actor._put("done", [number])
        data = await call
        assert data is not None
        assert messages_of(data) == [["done", [number]]]
