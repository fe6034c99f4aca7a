"""A lease moves once: from the worker that claimed the run to the process that executes it."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.domain.values import AttemptRef
from holdfast.sql import take_over
from tests.timeline import Timeline


@pytest.mark.every_driver
def test_process_that_takes_over_an_attempt_ends_it(timeline: Timeline) -> None:
    run = timeline.submit({"n": 7})
    claim = timeline.worker("a").claims(run)
    taken = timeline.worker("job").takes_over(claim.ref, timeline.worker("a"))
    assert (taken.ref, taken.task, taken.parameters) == (claim.ref, claim.task, claim.parameters)
    assert timeline.worker("job").succeeds(taken).accepted
    assert timeline.status(run) == "SUCCEEDED"
    assert timeline.story(run) == "SUBMITTED CLAIMED TAKEN_OVER SUCCEEDED"
    (attempt,) = timeline.attempts(run)
    assert (attempt.number, attempt.worker_id, attempt.executor) == (1, timeline.worker("job").id, "ray_job")


def test_claiming_worker_cannot_settle_or_renew_after_the_take_over(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.worker("job").takes_over(claim.ref, worker)
    assert worker.renew().held == frozenset()
    assert not worker.succeeds(claim).accepted
    assert not worker.fails(claim).accepted
    assert not worker.hands_back(claim).accepted
    assert not worker.releases(claim).accepted
    assert timeline.worker("job").renew().held == {claim.ref}
    assert timeline.status(run) == "RUNNING"


def test_death_of_the_claiming_worker_does_not_affect_an_attempt_that_was_taken_over(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    timeline.later(seconds=50)
    taken = timeline.worker("job").takes_over(claim.ref, timeline.worker("a"))
    timeline.later(seconds=30)
    assert timeline.rescue() == []
    assert timeline.worker("job").succeeds(taken).accepted


def test_attempt_of_a_dead_worker_can_be_taken_over_until_it_is_rescued(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    timeline.later(seconds=61)
    taken = timeline.worker("job").takes_over(claim.ref, timeline.worker("a"))
    assert timeline.rescue() == []
    assert timeline.worker("job").succeeds(taken).accepted


def test_lost_attempt_is_not_taken_over(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    timeline.later(seconds=61)
    timeline.rescue()
    assert timeline.worker("job").take_over(claim.ref, timeline.worker("a")) is None
    assert timeline.worker("b").claims(run).number == 2
    assert timeline.worker("job").take_over(claim.ref, timeline.worker("a")) is None
    fenced = [event.reason for event in timeline.events(run) if event.type == "FENCED"]
    assert fenced == ["take-over refused: the attempt ended LOST"] * 2


def test_attempt_is_taken_over_once(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    timeline.worker("job").takes_over(claim.ref, timeline.worker("a"))
    assert timeline.worker("twin").take_over(claim.ref, timeline.worker("a")) is None
    assert timeline.worker("twin").take_over(claim.ref, timeline.worker("job")) is None
    assert timeline.worker("job").renew().held == {claim.ref}
    assert timeline.story(run) == "SUBMITTED CLAIMED TAKEN_OVER FENCED FENCED"


def test_repeated_take_over_by_the_same_worker_returns_the_same_attempt(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    first = timeline.worker("job").takes_over(claim.ref, timeline.worker("a"))
    again = timeline.worker("job").takes_over(claim.ref, timeline.worker("a"))
    assert again.ref == first.ref
    assert timeline.story(run) == "SUBMITTED CLAIMED TAKEN_OVER"


def test_cancelled_attempt_is_not_taken_over(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.cancel(run)
    assert timeline.worker("job").take_over(claim.ref, worker) is None
    assert worker.stops(claim).accepted
    assert timeline.story(run) == "SUBMITTED CLAIMED CANCEL_REQUESTED FENCED CANCELLED"


def test_cancel_reaches_the_process_that_took_over_the_attempt(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    timeline.worker("job").takes_over(claim.ref, timeline.worker("a"))
    timeline.cancel(run)
    assert timeline.worker("a").renew().cancelled == frozenset()
    assert timeline.worker("job").renew().cancelled == {claim.ref}


def test_expired_worker_cannot_take_over_an_attempt(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("job")
    timeline.later(seconds=61)
    claim = timeline.worker("a").claims(run)
    assert timeline.worker("job").take_over(claim.ref, timeline.worker("a")) is None
    assert timeline.worker("a").renew().held == {claim.ref}


def test_attempt_is_taken_over_only_from_the_worker_that_holds_it(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.releases(worker.claims(run))
    claim = timeline.worker("b").claims(run)
    assert timeline.worker("job").take_over(claim.ref, worker) is None
    assert timeline.worker("b").renew().held == {claim.ref}


def test_attempt_that_has_been_retried_is_not_taken_over(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"delays": [0.0]}')
    worker = timeline.worker("a")
    first = worker.claims(run)
    worker.fails(first)
    second = worker.claims(run)
    assert timeline.worker("job").take_over(first.ref, worker) is None
    assert worker.renew().held == {second.ref}


def test_attempt_is_lost_if_the_process_that_took_it_over_stops_renewing(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.worker("job").takes_over(claim.ref, worker)
    timeline.later(seconds=30)
    worker.renew()
    timeline.later(seconds=31)
    (ack,) = timeline.rescue()
    assert ack.status == "LOST"
    assert timeline.attempts(run)[0].worker_id == timeline.worker("job").id


def test_refusals_are_counted(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    timeline.worker("job").takes_over(claim.ref, timeline.worker("a"))
    for twin in ("b", "c", "d"):
        assert timeline.worker(twin).take_over(claim.ref, timeline.worker("a")) is None
    assert connection.execute("select sum(amount) from holdfast.tallies where kind = 'fenced'").fetchone() == (3,)


def test_unknown_run_is_not_taken_over(timeline: Timeline) -> None:
    worker = timeline.worker("a")
    assert timeline.worker("job").take_over(AttemptRef(worker.id, 1), worker) is None


@pytest.mark.every_driver
def test_attempt_shows_where_it_is_executed(timeline: Timeline) -> None:
    run = timeline.submit()
    worker, job = timeline.worker("a"), timeline.worker("job")
    claim = worker.claims(run)
    assert timeline.ask(take_over.describe(worker.id, claim.ref, {"ray_submission_id": "s1"})) == 1
    (submitted,) = timeline.attempts(run)
    assert (submitted.status, submitted.ray_submission_id, submitted.ray_node_id) == ("SUBMITTED", "s1", None)
    taken = job.takes_over(claim.ref, worker, ray_node_id="n1")
    (running,) = timeline.attempts(run)
    assert (running.status, running.ray_submission_id, running.ray_node_id) == ("RUNNING", "s1", "n1")
    assert timeline.ask(take_over.describe(worker.id, claim.ref, {"ray_node_id": "n2"})) == 0
    job.succeeds(taken)
    (ended,) = timeline.attempts(run)
    assert (ended.status, ended.ray_submission_id, ended.ray_node_id) == ("SUCCEEDED", "s1", "n1")
    assert ended.claimed_by == worker.id


@pytest.mark.parametrize(
    "change",
    [
        "worker_id = %(other)s",
        "worker_id = %(other)s, claimed_by = %(other)s",
        "claimed_by = worker_id",
        "worker_id = %(other)s, claimed_by = worker_id, cancel_requested_at = holdfast.now()",
    ],
)
def test_database_refuses_every_other_move_of_a_lease(
    timeline: Timeline, connection: psycopg.Connection, change: str
) -> None:
    run = timeline.submit()
    timeline.worker("a").claims(run)
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(
            f"update holdfast.leases set {change} where run_id = %(run)s",
            {"run": run, "other": timeline.worker("b").id},
        )


def test_database_refuses_a_second_move_of_a_lease(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    timeline.worker("job").takes_over(claim.ref, timeline.worker("a"))
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(
            "update holdfast.leases set worker_id = %(other)s, claimed_by = worker_id where run_id = %(run)s",
            {"run": run, "other": timeline.worker("b").id},
        )


def test_database_refuses_to_move_a_lease_to_a_deregistered_worker(
    timeline: Timeline, connection: psycopg.Connection
) -> None:
    run = timeline.submit()
    timeline.worker("a").claims(run)
    timeline.worker("b").deregister()
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(
            "update holdfast.leases set worker_id = %(other)s, claimed_by = worker_id where run_id = %(run)s",
            {"run": run, "other": timeline.worker("b").id},
        )
