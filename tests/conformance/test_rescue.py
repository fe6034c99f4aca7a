"""Rescuing: attempts of a dead worker become LOST, and their runs are retried or fail."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast import ops
from holdfast.sql import workers
from tests.timeline import Timeline


@pytest.mark.every_driver
def test_first_lost_attempt_is_retried_immediately(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").claims(run)
    timeline.later(seconds=61)
    assert [(v.status, v.outcome) for v in timeline.rescue()] == [("LOST", None)]
    claim = timeline.worker("b").claims(run)
    assert (claim.number, claim.crashes, claim.spent) == (2, 1, 2)
    attempt = timeline.attempts(run)[0]
    assert (attempt.status, attempt.reason) == ("LOST", "lost")
    assert attempt.error is not None
    assert timeline.worker("a").id in attempt.error["message"]


def test_later_lost_attempts_are_delayed_and_counted_by_the_policy(timeline: Timeline) -> None:
    run = timeline.submit()
    for number, delay in ((1, 0), (2, 20), (3, None)):
        claim = timeline.worker(f"worker {number}").claims(run)
        assert claim.number == number
        timeline.later(seconds=61)
        ack = timeline.rescue()[0]
        if delay is None:
            assert ack.outcome == "FAILED"
            continue
        timeline.later(seconds=max(0, delay - 1))
        assert timeline.promote() == 0
        timeline.later(seconds=min(1, delay))
        assert timeline.promote() == (1 if delay else 0)
    read = timeline.get(run)
    assert (read.status, read.attempt_count) == ("FAILED", 3)
    assert read.last_error is not None
    assert read.last_error.startswith("LeaseExpired")
    assert timeline.story(run) == "SUBMITTED CLAIMED LOST CLAIMED LOST CLAIMED FAILED"


def test_run_of_a_live_worker_is_not_rescued(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").claims(run)
    timeline.later(seconds=59)
    assert timeline.perform(lambda: ops.find_orphans(10)) == []
    assert timeline.status(run) == "RUNNING"


def test_orphan_that_was_settled_in_the_meantime_is_not_rescued(timeline: Timeline) -> None:
    """Between finding and rescuing, the worker may have ended the run, or another worker may have rescued it."""
    ended, rescued = timeline.submit({"n": 1}), timeline.submit({"n": 2})
    worker = timeline.worker("a")
    claims = worker.claim(2)
    timeline.later(seconds=61)
    orphans = timeline.perform(lambda: ops.find_orphans(10))
    assert [orphan.run_id for orphan in orphans] == [ended, rescued]
    timeline.later(seconds=-30)
    worker.succeeds(claims[0])
    timeline.later(seconds=30)
    timeline.worker("b").takes(rescued)
    assert timeline.perform(lambda: ops.rescue(orphans, 0.5)) == []
    assert (timeline.status(ended), timeline.status(rescued)) == ("SUCCEEDED", "RUNNING")
    assert "FENCED" not in timeline.story(ended) + timeline.story(rescued)


def test_orphan_whose_worker_was_renewed_in_the_meantime_is_not_rescued(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.claims(run)
    timeline.later(seconds=61)
    orphans = timeline.perform(lambda: ops.find_orphans(10))
    timeline.later(seconds=-30)
    worker.renew()
    assert timeline.perform(lambda: ops.rescue(orphans, 0.5)) == []
    assert timeline.status(run) == "RUNNING"


def test_orphan_with_a_newer_attempt_is_not_rescued(timeline: Timeline) -> None:
    """A decision about one attempt is not applied to a later one, even if that one's worker is dead too."""
    run = timeline.submit(policy='{"max_attempts": 2}')
    timeline.worker("a").claims(run)
    timeline.later(seconds=61)
    orphans = timeline.perform(lambda: ops.find_orphans(10))
    timeline.worker("b").takes(run)
    timeline.later(seconds=61)
    assert timeline.perform(lambda: ops.rescue(orphans, 0.5)) == []
    assert timeline.get(run).attempt_count == 2
    assert [ack.outcome for ack in timeline.rescue()] == ["FAILED"]


def test_lease_of_an_unknown_worker_is_rescued(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = timeline.submit()
    timeline.worker("a").claims(run)
    connection.execute("delete from holdfast.workers")
    assert [ack.status for ack in timeline.rescue()] == ["LOST"]
    assert timeline.status(run) == "PENDING"


@pytest.mark.every_driver
def test_worker_with_leases_is_not_deleted(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.worker("a").claims(run)
    timeline.later(hours=3)
    assert timeline.ask(workers.forget(2)) == 0
    timeline.rescue()
    assert timeline.ask(workers.forget(2)) == 1


def test_oldest_orphans_are_found_first_up_to_the_limit(timeline: Timeline) -> None:
    runs = [timeline.submit({"n": n}) for n in range(3)]
    worker = timeline.worker("a", lease=timedelta(minutes=1))
    for run in runs:
        worker.claims(run)
    timeline.later(minutes=2)
    found = timeline.perform(lambda: ops.find_orphans(2))
    assert [orphan.run_id for orphan in found] == runs[:2]


@pytest.mark.parametrize("amount", [0, 3])
def test_many_orphans_are_rescued_together(timeline: Timeline, amount: int) -> None:
    for n in range(amount):
        timeline.submit({"n": n})
    timeline.worker("a").claim(10)
    timeline.later(seconds=61)
    orphans = timeline.perform(lambda: ops.find_orphans(10))
    assert len(timeline.perform(lambda: ops.rescue(orphans, 0.5))) == amount
    assert len(timeline.worker("b").claim(10)) == amount
