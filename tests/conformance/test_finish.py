"""Finishing: an outcome is accepted once, from the worker that holds a valid lease."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.ids import derived_id, new_id
from holdfast.domain.jobs import NewJob
from holdfast.domain.settling import Failed, NotBegun, Outcome, Succeeded, settle
from holdfast.domain.values import StoredResult
from holdfast.sql import tallies
from holdfast.sql.statement import Statement
from tests.timeline import ERROR, Timeline, new_run


@pytest.mark.every_driver
def test_succeeded_run_has_its_result(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    ack = worker.succeeds(worker.claims(run), '{"objective": 0.83}')
    assert (ack.accepted, ack.status, ack.outcome) == (
        True,
        "SUCCEEDED",
        "SUCCEEDED",
    )
    found = timeline.perform(lambda: ops.result(run))
    assert (found.text, found.ref) == ('{"objective": 0.83}', None)
    assert timeline.get(run).finished_at is not None


def test_result_in_a_store_is_recorded_with_reference_and_hash(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    stored = StoredResult(f"{run}/1.json", 12, "ab" * 32)
    assert worker.finish(worker.claims(run), Succeeded(stored=stored)).accepted
    found = timeline.perform(lambda: ops.result(run))
    assert found == (None, stored.ref, stored.size, stored.sha256)


def test_second_finish_of_an_attempt_is_rejected_and_recorded(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    assert worker.succeeds(claim, '"first"').accepted
    assert not worker.succeeds(claim, '"second"').accepted
    assert not worker.fails(claim).accepted
    assert timeline.perform(lambda: ops.result(run)).text == '"first"'
    assert timeline.story(run) == "SUBMITTED CLAIMED SUCCEEDED FENCED FENCED"


def test_finish_after_the_lease_expired_is_rejected(timeline: Timeline) -> None:
    """Even if the run has not been rescued yet: the lease decides, not the rescue."""
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.later(seconds=61)
    assert not worker.succeeds(claim).accepted
    assert not worker.fails(claim).accepted
    assert timeline.status(run) == "RUNNING"
    assert timeline.story(run) == "SUBMITTED CLAIMED FENCED FENCED"


def test_finish_of_an_earlier_attempt_is_rejected(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    first = worker.claims(run)
    worker.hands_back(first)
    second = worker.claims(run)
    assert not worker.succeeds(first, '"late"').accepted
    assert worker.succeeds(second, '"in time"').accepted
    assert timeline.perform(lambda: ops.result(run)).text == '"in time"'


def test_finish_by_another_worker_is_rejected(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    assert not timeline.worker("b").succeeds(claim).accepted
    assert not timeline.worker("b").fails(claim).accepted
    assert timeline.worker("a").succeeds(claim).accepted


@pytest.mark.parametrize("retryable", [True, False])
def test_cancel_request_overrides_any_outcome(timeline: Timeline, retryable: bool) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.cancel(run, "too late for that")
    ack = worker.fails(claim, retryable=retryable)
    assert (ack.accepted, ack.outcome) == (True, "CANCELLED")
    assert (timeline.status(run), timeline.get(run).reason) == ("CANCELLED", "too late for that")


def test_cancel_request_overrides_a_success(timeline: Timeline, connection: psycopg.Connection) -> None:
    cancelled_with(timeline, connection, Succeeded(result="1"))


def test_cancel_request_overrides_a_success_with_a_stored_result(
    timeline: Timeline, connection: psycopg.Connection
) -> None:
    cancelled_with(timeline, connection, Succeeded(stored=StoredResult("r/1.json", 12, "ab" * 32)))


def cancelled_with(timeline: Timeline, connection: psycopg.Connection, outcome: Succeeded) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.cancel(run)
    ack = worker.finish(claim, outcome)
    assert (ack.accepted, ack.status, ack.outcome) == (
        True,
        "CANCELLED",
        "CANCELLED",
    )
    assert timeline.status(run) == "CANCELLED"
    assert connection.execute("select result, result_ref from holdfast.attempts").fetchall() == [(None, None)]


@pytest.mark.every_driver
def test_failed_attempt_is_retried_after_its_delay(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a", lease=timedelta(hours=1))
    for number, delay in ((1, 5), (2, 20)):
        claim = worker.claims(run)
        assert claim.number == number
        ack = worker.fails(claim)
        assert (ack.accepted, ack.outcome) == (True, None)
        assert (timeline.status(run), timeline.get(run).reason) == ("PENDING", "retry")
        timeline.later(seconds=delay - 1)
        assert timeline.promote() == 0
        timeline.later(seconds=1)
        assert timeline.promote() == 1
    assert worker.fails(worker.claims(run)).outcome == "FAILED"
    read = timeline.get(run)
    assert (read.status, read.attempt_count, read.last_error) == ("FAILED", 3, "Broken: it broke")


def test_fatal_failure_is_not_retried(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    assert worker.fails(worker.claims(run), retryable=False).outcome == "FAILED"
    assert timeline.get(run).attempt_count == 1


def test_first_crash_is_retried_immediately_and_later_ones_by_policy(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a", lease=timedelta(hours=1))
    worker.fails(worker.claims(run), reason="crash")
    second = worker.claims(run)
    assert (second.number, second.crashes) == (2, 1)
    worker.fails(second, reason="crash")
    assert worker.claim() == []
    timeline.later(seconds=20)
    timeline.promote()
    assert worker.fails(worker.claims(run), reason="crash").outcome == "FAILED"


def test_handing_back_uses_up_no_attempt(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"max_attempts": 1}')
    worker = timeline.worker("a")
    for _ in range(3):
        ack = worker.hands_back(worker.claims(run))
        assert (ack.accepted, ack.status, ack.outcome) == (True, "CANCELLED", None)
    claim = worker.claims(run)
    assert (claim.number, claim.spent) == (4, 1)
    assert worker.succeeds(claim).accepted
    assert [attempt.reason for attempt in timeline.attempts(run)] == ["handed-back"] * 3 + [None]


@pytest.mark.every_driver
def test_acknowledgements_are_in_the_order_of_the_settlements(timeline: Timeline) -> None:
    for n in range(4):
        timeline.submit({"n": n})
    worker = timeline.worker("a")
    claims = worker.claim(4)
    worker.succeeds(claims[2])
    outcomes = [Failed(ERROR), Succeeded(result="1"), Succeeded(result="1"), Failed(ERROR, retryable=False)]
    settlements = [settle(claim, outcome, 0.5) for claim, outcome in zip(claims, outcomes, strict=True)]
    acks = timeline.perform(lambda: ops.finish(worker.id, settlements))
    assert [ack.ref for ack in acks] == [claim.ref for claim in claims]
    assert [ack.accepted for ack in acks] == [True, True, False, True]
    assert [ack.outcome for ack in acks] == [
        None,
        "SUCCEEDED",
        "SUCCEEDED",
        "FAILED",
    ]


@pytest.mark.parametrize("second", [Succeeded(result="2"), Failed(ERROR), Failed(ERROR, retryable=False), NotBegun()])
def test_attempt_that_is_given_twice_is_settled_and_counted_once(
    timeline: Timeline, connection: psycopg.Connection[Any], second: Outcome
) -> None:
    job_id = new_id()
    runs = [new_run({"n": n}, id=derived_id(job_id, str(n)), job_id=job_id) for n in range(2)]
    timeline.perform(lambda: ops.create_job(NewJob(job_id, "job"), []))
    timeline.perform(lambda: ops.add_tasks(runs, None))
    worker = timeline.worker("a")
    claim, _ = worker.claim(2)
    settlements = [settle(claim, outcome, 0.5) for outcome in (Succeeded(result="1"), second)]
    acks = timeline.perform(lambda: ops.finish(worker.id, settlements))
    assert [(ack.ref, ack.accepted, ack.outcome) for ack in acks] == [(claim.ref, True, "SUCCEEDED")] * 2
    assert timeline.perform(lambda: ops.result(claim.run_id)).text == "1"
    counts = connection.execute("select succeeded, failed, cancelled, finished_at from holdfast.jobs").fetchone()
    assert counts == (1, 0, 0, None)
    assert [event.type for event in timeline.events(claim.run_id)] == ["SUBMITTED", "CLAIMED", "SUCCEEDED"]


@pytest.mark.every_driver
def test_finish_and_its_counters_are_one_transaction(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    settlement = settle(worker.claims(run), Succeeded(result="1"), 0.5)

    def cut_short() -> Iterator[Statement[Any]]:
        yield next(ops.finish(worker.id, [settlement]))
        raise ConnectionError("the worker is gone")

    with pytest.raises(ConnectionError):
        timeline.perform(cut_short)
    assert timeline.status(run) == "RUNNING"


@pytest.mark.every_driver
def test_ended_run_is_counted_once(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    worker.finish(claim, Succeeded(result="1", elapsed=2.0))
    worker.succeeds(claim)
    totals = {(task, kind): total for (task, kind, _), total in timeline.ask(tallies.totals()).items()}
    assert totals["work", "SUCCEEDED"] == (1, 2.0)
    assert totals["work", "fenced"] == (1, 0.0)
    assert timeline.ask(tallies.fold(1000)) == 4
    assert {(task, kind): total for (task, kind, _), total in timeline.ask(tallies.totals()).items()} == totals


@pytest.mark.parametrize("backwards", [False, True])
def test_acknowledgements_of_a_batch_of_successes_are_in_its_order(timeline: Timeline, backwards: bool) -> None:
    worker = timeline.worker("a")
    claims = [worker.claims(timeline.submit()) for _ in range(3)]
    timeline.cancel(claims[0].run_id)
    settlements = [settle(claim, Succeeded(result="1"), 0.5) for claim in claims]
    if backwards:
        settlements.reverse()
    acks = timeline.perform(lambda: ops.finish(worker.id, settlements))
    assert [ack.ref for ack in acks] == [one.ref for one in settlements]
    assert {ack.ref.run_id: ack.outcome for ack in acks} == {
        claim.run_id: timeline.status(claim.run_id) for claim in claims
    }


def test_success_is_recorded_with_the_executor_that_its_settlement_names(
    timeline: Timeline, connection: psycopg.Connection[Any]
) -> None:
    worker = timeline.worker("a")
    run = timeline.submit()
    worker.finish(worker.claims(run), Succeeded(result="1"), executor="elsewhere")
    row = connection.execute("select executor from holdfast.attempts where run_id = %s", [run]).fetchone()
    assert row == ("elsewhere",)


def test_worker_that_sums_up_counters_does_not_wait_for_another_worker(
    timeline: Timeline, connection: psycopg.Connection[Any]
) -> None:
    timeline.cancel(timeline.submit())
    totals = timeline.ask(tallies.totals())
    fold = tallies.fold(1000)
    with connection.transaction():
        assert connection.execute(fold.sql, fold.params).fetchone() == (2,)
        assert timeline.ask(fold) == 0
    assert timeline.ask(tallies.totals()) == totals
    timeline.cancel(timeline.submit())
    assert timeline.ask(fold) == 2


def test_counters_are_summed_up_except_those_that_a_user_has_locked(
    timeline: Timeline, connection: psycopg.Connection[Any]
) -> None:
    timeline.cancel(timeline.submit())
    with connection.transaction():
        connection.execute("select from holdfast.tallies for update")
        timeline.cancel(timeline.submit())
        assert timeline.ask(tallies.fold(1000)) == 2
        assert timeline.ask(tallies.fold(1000)) == 0
    totals = timeline.ask(tallies.totals())
    assert timeline.ask(tallies.fold(1000)) == 2
    assert timeline.ask(tallies.totals()) == totals


def test_handed_back_attempt_lasted_since_its_claim(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.later(seconds=30)
    worker.hands_back(claim)
    assert _seconds_since_claim(timeline, run) >= 30
    assert timeline.get(run).started_at == timeline.attempts(run)[0].claimed_at


def test_lost_attempt_lasted_since_its_claim(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").claims(run)
    timeline.later(minutes=10)
    timeline.rescue()
    assert _seconds_since_claim(timeline, run) >= 600


def _seconds_since_claim(timeline: Timeline, run: str) -> float:
    """Return the seconds of the run's only attempt, which are the same in its record and in the counters."""
    (attempt,) = timeline.attempts(run)
    assert attempt.finished_at is not None
    assert attempt.started_at == attempt.claimed_at
    seconds = (attempt.finished_at - attempt.claimed_at).total_seconds()
    counted = [total for (_, kind, _), total in timeline.ask(tallies.totals()).items() if kind == "retried"]
    assert counted == [(1, pytest.approx(seconds))]
    return seconds


def test_attempt_starts_when_its_execution_started(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    timeline.later(seconds=30)
    worker.finish(claim, Succeeded(result="1", elapsed=10.0))
    attempt = timeline.attempts(run)[0]
    assert attempt.started_at is not None
    assert attempt.finished_at is not None
    assert (attempt.finished_at - attempt.started_at) == timedelta(seconds=10)
    assert attempt.claimed_at < attempt.started_at
