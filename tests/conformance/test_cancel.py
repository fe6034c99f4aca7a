"""Cancelling: immediate for pending runs, by request for running ones, and rejected for ended ones."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.errors import RunEnded, RunNotFound
from holdfast.domain.ids import new_id
from tests.timeline import Timeline


def test_cancelled_ready_run_ends_immediately(timeline: Timeline) -> None:
    run = timeline.submit()
    record = timeline.cancel(run, "changed my mind")
    assert (record.status, record.reason, record.attempt_count) == ("CANCELLED", "changed my mind", 0)
    assert timeline.worker("a").claim() == []
    assert timeline.story(run) == "SUBMITTED CANCELLED"


def test_cancelled_waiting_run_ends_immediately(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timedelta(minutes=5))
    assert timeline.cancel(run).status == "CANCELLED"
    timeline.later(minutes=6)
    assert timeline.promote() == 0


def test_run_cancelled_between_two_attempts_ends_immediately(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.fails(worker.claims(run))
    record = timeline.cancel(run)
    assert (record.status, record.attempt_count) == ("CANCELLED", 1)
    assert timeline.story(run) == "SUBMITTED CLAIMED RETRIED CANCELLED"


@pytest.mark.every_driver
def test_running_run_with_a_cancel_request_can_only_end_cancelled(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    record = timeline.cancel(run, "stop")
    assert (record.status, record.reason) == ("RUNNING", "stop")
    assert record.cancel_requested_at is not None
    assert worker.stops(claim).outcome == "CANCELLED"
    assert timeline.status(run) == "CANCELLED"
    assert timeline.story(run) == "SUBMITTED CLAIMED CANCEL_REQUESTED CANCELLED"


def test_second_cancel_request_changes_nothing(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").claims(run)
    first = timeline.cancel(run, "first")
    timeline.later(seconds=5)
    again = timeline.cancel(run, "second")
    assert (again.cancel_requested_at, again.reason) == (first.cancel_requested_at, "first")
    assert timeline.story(run) == "SUBMITTED CLAIMED CANCEL_REQUESTED"


@pytest.mark.every_driver
def test_no_new_attempt_starts_after_a_cancel(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").claims(run)
    timeline.cancel(run)
    timeline.later(seconds=61)
    assert [(ack.status, ack.outcome) for ack in timeline.rescue()] == [("LOST", "CANCELLED")]
    assert timeline.worker("b").claim() == []
    assert timeline.status(run) == "CANCELLED"


def test_run_handed_back_after_a_cancel_request_is_cancelled(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.cancel(run)
    assert worker.hands_back(claim).outcome == "CANCELLED"


def test_cancelling_twice_has_the_effect_of_cancelling_once(timeline: Timeline) -> None:
    run = timeline.submit()
    first = timeline.cancel(run, "first")
    again = timeline.cancel(run, "second")
    assert (again.status, again.reason, again.finished_at) == ("CANCELLED", "first", first.finished_at)
    assert timeline.story(run) == "SUBMITTED CANCELLED"


@pytest.mark.every_driver
@pytest.mark.parametrize("ending", ["SUCCEEDED", "FAILED"])
def test_run_that_has_ended_otherwise_cannot_be_cancelled(timeline: Timeline, ending: str) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    if ending == "SUCCEEDED":
        worker.succeeds(claim)
    else:
        worker.fails(claim, retryable=False)
    with pytest.raises(RunEnded, match=ending):
        timeline.cancel(run)
    assert timeline.status(run) == ending


def test_unknown_run_cannot_be_cancelled(timeline: Timeline) -> None:
    with pytest.raises(RunNotFound):
        timeline.cancel(new_id())
