"""Why a run waits: the conditions of a claim, one reason at a time."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast.domain.errors import RunNotFound
from holdfast.domain.ids import new_id
from holdfast.domain.tasks import task
from holdfast.sql import workers
from tests.timeline import Timeline


def codes(timeline: Timeline, run: str) -> list[str]:
    return [reason.code for reason in timeline.why(run)]


def test_why_of_the_first_ready_run_is_next(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a")
    assert codes(timeline, run) == ["next"]


def test_why_without_workers_is_no_worker(timeline: Timeline) -> None:
    run = timeline.submit()
    assert codes(timeline, run) == ["no-worker"]
    worker = timeline.worker("a")
    worker.drain()
    assert codes(timeline, run) == ["no-worker"]


def test_why_without_a_worker_for_the_queue_says_so(timeline: Timeline) -> None:
    run = timeline.submit(queue="models")
    timeline.worker("a", queues=("other",))
    assert codes(timeline, run) == ["no-worker-for-queue"]


def test_why_without_a_worker_for_the_task_says_so(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a", tasks=("other",))
    assert codes(timeline, run) == ["no-worker-for-task"]


def test_why_names_the_executor_that_no_worker_has(timeline: Timeline) -> None:
    @task("needs_ray", executor="ray_core")
    def needs_ray() -> None:
        """Never executed."""

    run = timeline.submit(task="needs_ray")
    timeline.worker("a", tasks=("other",))
    (reason,) = timeline.why(run)
    assert (reason.code, reason.fields["executor"]) == ("no-worker-for-executor", "ray_core")


@pytest.mark.every_driver
def test_why_says_that_the_only_workers_cannot_reach_their_cluster(timeline: Timeline) -> None:
    run = timeline.submit()
    away, other = timeline.worker("away"), timeline.worker("other")
    timeline.ask(workers.note_away(away.id, "no Ray cluster listens at 127.0.0.1:1"))
    assert codes(timeline, run) == ["next"]
    other.drain()
    (reason,) = timeline.why(run)
    assert (reason.code, reason.fields["why"]) == ("executor-away", "no Ray cluster listens at 127.0.0.1:1")
    assert [worker.why for worker in timeline.ask(workers.away())] == ["no Ray cluster listens at 127.0.0.1:1"]
    timeline.ask(workers.note_away(away.id, None))
    assert codes(timeline, run) == ["next"]


def test_why_of_a_run_that_is_not_due_is_scheduled(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timedelta(minutes=5))
    timeline.worker("a")
    assert codes(timeline, run) == ["scheduled"]


def test_why_of_a_run_between_attempts_is_retry(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.fails(worker.claims(run))
    assert codes(timeline, run) == ["retry"]


@pytest.mark.every_driver
def test_why_of_a_blocked_run_is_dependencies(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = timeline.submit(run_after=timedelta(seconds=1))
    connection.execute("update holdfast.waiting set blockers = 2")
    timeline.later(seconds=2)
    timeline.worker("a")
    assert codes(timeline, run) == ["dependencies"]


def test_why_of_a_run_in_a_paused_queue_names_who_paused_it(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a")
    timeline.pause("default", "ada", "maintenance")
    (reason,) = timeline.why(run)
    assert reason.code == "paused"
    assert "ada" in reason.detail
    assert "maintenance" in reason.detail


def test_why_counts_the_runs_ahead(timeline: Timeline) -> None:
    timeline.submit({"n": 1}, priority=1)
    timeline.submit({"n": 2})
    run = timeline.submit({"n": 3})
    timeline.submit({"n": 4})
    timeline.worker("a")
    (reason,) = timeline.why(run)
    assert reason.code == "behind"
    assert reason.detail.startswith("2 ")


def test_why_is_busy_if_all_slots_are_in_use(timeline: Timeline) -> None:
    timeline.submit({"n": 1})
    run = timeline.submit({"n": 2})
    timeline.worker("a", slots=1).claim()
    assert codes(timeline, run) == ["busy"]


def test_why_follows_a_run_through_running_stopping_and_ended(timeline: Timeline) -> None:
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
def test_why_returns_several_reasons(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timedelta(minutes=5))
    timeline.pause("default")
    assert codes(timeline, run) == ["scheduled", "paused", "no-worker"]


def test_why_of_an_unknown_run_raises_run_not_found(timeline: Timeline) -> None:
    with pytest.raises(RunNotFound):
        timeline.why(new_id())
