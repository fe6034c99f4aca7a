"""Why a run waits: the same predicates as the claim's, one reason at a time."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast.domain.errors import RunNotFound
from holdfast.domain.ids import new_id
from tests.timeline import Timeline


def codes(timeline: Timeline, run: str) -> list[str]:
    return [reason.code for reason in timeline.why(run)]


def test_next(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a")
    assert codes(timeline, run) == ["next"]


def test_no_worker(timeline: Timeline) -> None:
    run = timeline.submit()
    assert codes(timeline, run) == ["no-worker"]
    worker = timeline.worker("a")
    worker.drain()
    assert codes(timeline, run) == ["no-worker"]


def test_no_worker_for_the_queue(timeline: Timeline) -> None:
    run = timeline.submit(queue="models")
    timeline.worker("a", queues=("other",))
    assert codes(timeline, run) == ["no-worker-for-queue"]


def test_no_worker_for_the_task(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a", tasks=("other",))
    assert codes(timeline, run) == ["no-worker-for-task"]


def test_scheduled(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timedelta(minutes=5))
    timeline.worker("a")
    assert codes(timeline, run) == ["scheduled"]


def test_retry(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.fails(worker.claims(run))
    assert codes(timeline, run) == ["retry"]


@pytest.mark.every_driver
def test_dependencies(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = timeline.submit(run_after=timedelta(seconds=1))
    connection.execute("update holdfast.waiting set blockers = 2")
    timeline.later(seconds=2)
    timeline.worker("a")
    assert codes(timeline, run) == ["dependencies"]


def test_paused(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a")
    timeline.pause("default", "ada", "maintenance")
    (reason,) = timeline.why(run)
    assert reason.code == "paused"
    assert "ada" in reason.detail
    assert "maintenance" in reason.detail


def test_behind(timeline: Timeline) -> None:
    timeline.submit({"n": 1}, priority=1)
    timeline.submit({"n": 2})
    run = timeline.submit({"n": 3})
    timeline.submit({"n": 4})
    timeline.worker("a")
    (reason,) = timeline.why(run)
    assert reason.code == "behind"
    assert reason.detail.startswith("2 ")


def test_busy(timeline: Timeline) -> None:
    timeline.submit({"n": 1})
    run = timeline.submit({"n": 2})
    timeline.worker("a", slots=1).claim()
    assert codes(timeline, run) == ["busy"]


def test_running_stopping_and_ended(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    (reason,) = timeline.why(run)
    assert reason.code == "running"
    assert worker.id in reason.detail
    timeline.cancel(run, "enough")
    (reason,) = timeline.why(run)
    assert reason.code == "stopping"
    assert "enough" in reason.detail
    worker.stops(claim)
    assert codes(timeline, run) == ["ended"]


@pytest.mark.every_driver
def test_several_reasons_come_together(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timedelta(minutes=5))
    timeline.pause("default")
    assert codes(timeline, run) == ["scheduled", "paused", "no-worker"]


def test_unknown(timeline: Timeline) -> None:
    with pytest.raises(RunNotFound):
        timeline.why(new_id())
