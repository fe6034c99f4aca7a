"""Claiming one run by its id, as the RQ doorbell does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.ids import new_id
from holdfast.sql import orphans
from tests.timeline import Timeline


def test_ready_run_is_claimed_by_id(timeline: Timeline) -> None:
    timeline.submit({"n": 1})
    run = timeline.submit({"n": 2})
    claim = timeline.worker("a").takes(run)
    assert (claim.run_id, claim.number, claim.parameters) == (run, 1, '{"n":2}')


def test_leased_run_is_not_claimed_by_id(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").takes(run)
    assert timeline.worker("b").take(run) is None
    assert timeline.worker("a").take(run) is None
    assert timeline.get(run).attempt_count == 1


@pytest.mark.every_driver
def test_leased_run_is_not_an_orphan(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").takes(run)
    assert timeline.ask(orphans.of_run(run)) == []
    timeline.later(seconds=61)
    assert [orphan.run_id for orphan in timeline.ask(orphans.of_run(run))] == [run]


@pytest.mark.every_driver
def test_expired_lease_is_claimed_by_another_worker(timeline: Timeline) -> None:
    run = timeline.submit()
    lost = timeline.worker("a").takes(run)
    timeline.later(seconds=61)
    claim = timeline.worker("b").takes(run)
    assert claim.number == 2
    assert [attempt.status for attempt in timeline.attempts(run)] == ["LOST", "RUNNING"]
    assert not timeline.worker("a").succeeds(lost).accepted
    assert timeline.worker("b").succeeds(claim).accepted
    assert timeline.story(run) == "SUBMITTED CLAIMED LOST CLAIMED FENCED SUCCEEDED"


def test_run_without_attempts_left_is_not_claimed_after_its_lease_expired(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"max_attempts": 1}')
    timeline.worker("a").takes(run)
    timeline.later(seconds=61)
    assert timeline.worker("b").take(run) is None
    assert timeline.status(run) == "FAILED"


def test_run_with_a_cancel_request_is_not_claimed_after_its_lease_expired(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").takes(run)
    timeline.cancel(run)
    timeline.later(seconds=61)
    assert timeline.worker("b").take(run) is None
    assert timeline.status(run) == "CANCELLED"


def test_scheduled_run_is_claimed_by_id_once_it_is_due(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timedelta(minutes=5))
    worker = timeline.worker("a", lease=timedelta(hours=1))
    assert worker.take(run) is None
    timeline.later(minutes=5)
    worker.takes(run)


def test_ended_or_unknown_run_is_not_claimed_by_id(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.succeeds(worker.takes(run))
    assert worker.take(run) is None
    assert worker.take(new_id()) is None
