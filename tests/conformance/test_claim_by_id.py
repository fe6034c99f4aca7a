"""Claiming one run by its id, as a doorbell that names runs does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.ids import new_id
from holdfast.sql import leases
from tests.timeline import Timeline


def test_a_ready_run_is_taken(timeline: Timeline) -> None:
    timeline.submit({"n": 1})
    run = timeline.submit({"n": 2})
    claim = timeline.worker("a").takes(run)
    assert (claim.run_id, claim.number, claim.parameters) == (run, 1, '{"n":2}')


def test_a_run_that_is_held_is_not(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").takes(run)
    assert timeline.worker("b").take(run) is None
    assert timeline.worker("a").take(run) is None
    assert timeline.get(run).attempt_count == 1


@pytest.mark.every_driver
def test_a_run_that_is_held_is_found_by_nobody(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").takes(run)
    assert timeline.ask(leases.orphan(run)) == []
    timeline.later(seconds=61)
    assert [orphan.run_id for orphan in timeline.ask(leases.orphan(run))] == [run]


@pytest.mark.every_driver
def test_a_lease_that_has_passed_is_taken_over(timeline: Timeline) -> None:
    run = timeline.submit()
    lost = timeline.worker("a").takes(run)
    timeline.later(seconds=61)
    claim = timeline.worker("b").takes(run)
    assert claim.number == 2
    assert [attempt.status for attempt in timeline.attempts(run)] == ["LOST", "RUNNING"]
    assert not timeline.worker("a").succeeds(lost).accepted
    assert timeline.worker("b").succeeds(claim).accepted
    assert timeline.story(run) == "SUBMITTED CLAIMED LOST CLAIMED FENCED SUCCEEDED"


def test_a_run_whose_budget_is_lost_with_its_worker_is_not_taken_over(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"max_attempts": 1}')
    timeline.worker("a").takes(run)
    timeline.later(seconds=61)
    assert timeline.worker("b").take(run) is None
    assert timeline.status(run) == "FAILED"


def test_a_run_asked_to_stop_is_not_taken_over(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").takes(run)
    timeline.cancel(run)
    timeline.later(seconds=61)
    assert timeline.worker("b").take(run) is None
    assert timeline.status(run) == "CANCELLED"


def test_a_run_is_taken_when_its_time_has_come_and_not_before(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timedelta(minutes=5))
    worker = timeline.worker("a", lease=timedelta(hours=1))
    assert worker.take(run) is None
    timeline.later(minutes=5)
    worker.takes(run)


def test_an_ended_or_unknown_run_is_not_taken(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.succeeds(worker.takes(run))
    assert worker.take(run) is None
    assert worker.take(new_id()) is None
