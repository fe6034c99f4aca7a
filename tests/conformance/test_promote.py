"""Promoting: waiting runs become ready when they are due."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast import ops
from tests.timeline import Timeline


def test_due_runs_become_ready_in_order(timeline: Timeline) -> None:
    late = timeline.submit({"n": 1}, run_after=timedelta(minutes=10))
    soon = timeline.submit({"n": 2}, run_after=timedelta(minutes=5))
    worker = timeline.worker("a", lease=timedelta(hours=1))
    timeline.later(minutes=11)
    assert timeline.promote() == 2
    assert [claim.run_id for claim in worker.claim(2)] == [soon, late]


@pytest.mark.every_driver
def test_promote_returns_when_the_next_run_is_due(timeline: Timeline) -> None:
    assert timeline.perform(lambda: ops.promote(10)) == (0, None)
    timeline.submit(run_after=timedelta(minutes=5))
    moved, seconds = timeline.perform(lambda: ops.promote(10))
    assert moved == 0
    assert seconds is not None
    assert 290 < seconds <= 300


def test_promote_moves_no_more_than_its_limit(timeline: Timeline) -> None:
    for n in range(3):
        timeline.submit({"n": n}, run_after=timedelta(seconds=1))
    timeline.later(seconds=2)
    assert timeline.perform(lambda: ops.promote(2))[0] == 2
    assert timeline.perform(lambda: ops.promote(2))[0] == 1


def test_blocked_run_is_not_promoted(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = timeline.submit(run_after=timedelta(seconds=1))
    connection.execute("update holdfast.waiting set blockers = 1")
    timeline.later(seconds=2)
    assert timeline.promote() == 0
    assert timeline.worker("a").take(run) is None


def test_promoted_run_keeps_its_number_and_priority(timeline: Timeline) -> None:
    run = timeline.submit(priority=7)
    worker = timeline.worker("a", lease=timedelta(hours=1))
    worker.hands_back(worker.claims(run))
    worker.fails(worker.claims(run))
    timeline.later(seconds=5)
    timeline.promote()
    claim = worker.claims(run)
    assert (claim.number, claim.excused, claim.ord) == (3, 1, -7)
