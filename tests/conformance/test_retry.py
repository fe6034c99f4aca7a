"""Retrying on request: the same run is reopened with all its attempts, and attempt numbers continue."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import RunEnded, RunNotFound
from holdfast.domain.ids import new_id
from tests.timeline import Timeline


@pytest.mark.every_driver
def test_retried_run_is_due_now_with_all_attempts(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"max_attempts": 2}')
    worker = timeline.worker("a", lease=timedelta(hours=1))
    worker.fails(worker.claims(run), retryable=False)
    assert timeline.retry(run, "ada").status == "PENDING"
    second = worker.claims(run)
    assert (second.number, second.spent) == (2, 1)
    worker.fails(second)
    timeline.later(seconds=5)
    timeline.promote()
    third = worker.claims(run)
    assert (third.number, third.spent) == (3, 2)
    assert worker.fails(third).outcome == "FAILED"
    assert timeline.story(run) == "SUBMITTED CLAIMED FAILED REOPENED CLAIMED RETRIED CLAIMED FAILED"
    assert timeline.events(run)[3].reason == "by ada"


def test_run_cancelled_before_it_started_can_be_retried(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.cancel(run)
    timeline.retry(run)
    assert timeline.worker("a").claims(run).number == 1


def test_run_can_be_cancelled_and_retried_repeatedly(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = timeline.submit()
    for _ in range(3):
        timeline.cancel(run)
        timeline.retry(run)
    worker = timeline.worker("a")
    worker.succeeds(worker.claims(run))
    numbers = connection.execute("select number from holdfast.attempts order by number").fetchall()
    assert [number for (number,) in numbers] == [-2, -1, 0, 1]
    assert timeline.story(run) == "SUBMITTED" + " CANCELLED REOPENED" * 3 + " CLAIMED SUCCEEDED"


def test_run_cancelled_while_running_can_be_retried(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.cancel(run)
    worker.stops(claim)
    timeline.retry(run)
    again = worker.claims(run)
    assert (again.number, again.spent) == (2, 1)
    assert worker.succeeds(again).outcome == "SUCCEEDED"


@pytest.mark.every_driver
def test_result_of_a_retried_run_is_that_of_its_success(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.fails(worker.claims(run), retryable=False)
    timeline.retry(run)
    worker.succeeds(worker.claims(run), '"at last"')
    assert timeline.perform(lambda: ops.result(run)).text == '"at last"'


@pytest.mark.every_driver
def test_succeeded_run_is_final(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.succeeds(worker.claims(run))
    with pytest.raises(RunEnded, match="SUCCEEDED"):
        timeline.retry(run)


@pytest.mark.parametrize("running", [True, False])
def test_run_that_has_not_ended_cannot_be_retried(timeline: Timeline, running: bool) -> None:
    run = timeline.submit()
    if running:
        timeline.worker("a").claims(run)
    with pytest.raises(RunEnded):
        timeline.retry(run)
    assert timeline.get(run).attempt_count == int(running)


def test_retrying_twice_reopens_once(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.cancel(run)
    timeline.retry(run)
    with pytest.raises(RunEnded, match="PENDING"):
        timeline.retry(run)


def test_unknown_run_cannot_be_retried(timeline: Timeline) -> None:
    with pytest.raises(RunNotFound):
        timeline.retry(new_id())
