"""The cost of an idle worker. Statements are counted on the wire, per poll."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.assembly.worker import listen_to
from holdfast.doorbells.poll import PollListener
from holdfast.sql.statement import Op, Statement, first
from holdfast.worker.upkeep import ONLY_WHEN_CALLED, Upkeep, every
from tests.integration.wire import Wire
from tests.integration.worker_support import DEADLINE, Stage, eventually

POLLS = 20


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path, lease_seconds=600, renew_seconds=150)
    yield stage
    stage.close()


def seen(wire: Wire) -> list[str]:
    """The statements that the worker sent to claim, to settle and to poll, prepared or not."""
    return ["commit" if one.lower() == "commit" else "statement" for one in wire.statements("holdfast worker")]


def quiet(stage: Stage, wire: Wire) -> int:
    """Execute runs until every statement is prepared. Return how many statements were sent so far."""
    for run in stage.client.submit_many("echo", [{}] * 50):
        stage.ended(run)
    return len(seen(wire))


def test_polling_worker_sends_one_statement_per_poll(stage: Stage, wire: Wire) -> None:
    """With one poll per second, and five statements per minute to renew and find orphans, that is about one."""
    with stage.worker("inline", database_url=wire.url, listener=PollListener(), poll_every=0.05):
        before = quiet(stage, wire)
        eventually(lambda: len(seen(wire)) >= before + POLLS)
        looks = seen(wire)[before:]
    assert looks[-10:] == ["statement"] * 10


def test_listening_worker_polls_in_one_transaction(stage: Stage, wire: Wire) -> None:
    """Six statements every eight seconds: begin, poll, find handed-over runs, orphans and due services, commit."""
    changes = {"poll_every_listening": 0.05, "rescue_every": 0.05}
    with stage.worker("inline", database_url=wire.url, listener=listen_to(wire.url), **changes) as worker:
        eventually(lambda: worker.options.listener.live)
        before = quiet(stage, wire)
        eventually(lambda: seen(wire)[before:].count("commit") >= POLLS)
        looks = seen(wire)[before:]
    last = len(looks) - looks[::-1].index("commit")
    assert looks[last - 12 : last] == ["statement", "statement", "statement", "statement", "statement", "commit"] * 2


def test_idle_worker_runs_a_service_when_its_due_statement_says(stage: Stage) -> None:
    """Neither the interval of the service nor a poll of the worker would run it during this test."""
    runs = threading.Semaphore(0)

    async def fire(upkeep: Upkeep) -> None:
        runs.release()

    def next_fire() -> Op[float | None]:
        return (yield from Statement("select 0.3::float8", {}, first(lambda row: float(row[0]))))

    service = every(ONLY_WHEN_CALLED, fire, due=next_fire)
    with stage.worker("inline", services=(service,), poll_every=600, poll_every_listening=600, rescue_every=600):
        for _ in range(3):
            assert runs.acquire(timeout=DEADLINE)


def test_service_that_has_nothing_due_does_not_run(stage: Stage) -> None:
    ran, asked = threading.Event(), threading.Semaphore(0)

    async def fire(upkeep: Upkeep) -> None:
        ran.set()

    def next_fire() -> Op[float | None]:
        asked.release()
        return (yield from Statement("select null::float8", {}, first(lambda row: row[0])))

    service = every(ONLY_WHEN_CALLED, fire, due=next_fire)
    with stage.worker("inline", services=(service,), poll_every=0.05, rescue_every=0.05):
        for _ in range(3):
            assert asked.acquire(timeout=DEADLINE)
    assert not ran.is_set()
