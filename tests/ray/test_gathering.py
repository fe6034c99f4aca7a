"""The executor inside an actor: results of short runs are gathered, and never wait for a run that takes long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import raycore, task
from holdfast.domain.execution import Ended
from holdfast.raycore import _Inline
from tests.ray.actors import claim_of, context_of

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
