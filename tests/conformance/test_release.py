"""Releasing: a claim that was not started returns to its position in the queue and leaves no attempt."""

from __future__ import annotations

import pytest

from tests.timeline import Timeline


def test_released_run_is_claimed_again_with_the_same_number(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    assert timeline.worker("a").releases(claim).accepted
    assert timeline.status(run) == "PENDING"
    assert timeline.attempts(run) == []
    assert timeline.worker("b").claims(run).number == 1
    assert timeline.story(run) == "SUBMITTED CLAIMED"


def test_released_run_keeps_its_position_in_the_queue(timeline: Timeline) -> None:
    first = timeline.submit({"n": 1})
    timeline.later(seconds=1)
    timeline.submit({"n": 2})
    timeline.worker("a").releases(timeline.worker("a").claims(first))
    timeline.worker("b").claims(first)


def test_released_retry_keeps_its_number_and_remaining_attempts(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"delays": [0.0]}')
    worker = timeline.worker("a")
    worker.fails(worker.claims(run))
    second = worker.claims(run)
    worker.releases(second)
    again = worker.claims(run)
    assert (again.number, again.excused, again.spent) == (2, 0, 2)


def test_another_worker_cannot_release_a_run(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    assert not timeline.worker("b").releases(claim).accepted
    assert timeline.status(run) == "RUNNING"
    assert timeline.story(run) == "SUBMITTED CLAIMED"


def test_expired_worker_releases_nothing(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    timeline.later(seconds=61)
    assert not timeline.worker("a").releases(claim).accepted
    assert timeline.status(run) == "RUNNING"


def test_release_of_an_earlier_attempt_is_rejected(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"delays": [0.0]}')
    worker = timeline.worker("a")
    first = worker.claims(run)
    worker.fails(first)
    worker.claims(run)
    assert not worker.releases(first).accepted
    assert timeline.status(run) == "RUNNING"


def test_released_run_with_a_cancel_request_ends(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    timeline.cancel(run)
    assert timeline.worker("a").releases(claim).outcome == "CANCELLED"
    assert timeline.status(run) == "CANCELLED"


@pytest.mark.every_driver
def test_run_not_started_by_a_stopped_worker_returns_without_an_attempt(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"max_attempts": 1}')
    worker = timeline.worker("a")
    worker.claims(run)
    worker.deregister(settled=True)
    (ack,) = timeline.rescue()
    assert ack.accepted
    assert timeline.status(run) == "PENDING"
    assert timeline.attempts(run) == []


def test_runs_that_a_dead_worker_may_have_started_are_lost(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"max_attempts": 1}')
    worker = timeline.worker("a")
    worker.claims(run)
    worker.deregister()
    timeline.rescue()
    assert timeline.status(run) == "FAILED"


def test_orphaned_run_with_a_cancel_request_ends(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.claims(run)
    timeline.cancel(run)
    worker.deregister(settled=True)
    timeline.rescue()
    assert timeline.status(run) == "CANCELLED"


def test_expired_worker_cannot_report_that_it_settled_everything(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"max_attempts": 1}')
    worker = timeline.worker("a")
    worker.claims(run)
    timeline.later(seconds=61)
    worker.deregister(settled=True)
    timeline.rescue()
    assert timeline.status(run) == "FAILED"
