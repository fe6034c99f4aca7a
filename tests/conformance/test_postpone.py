"""Postponing: a pending run waits until a time, and a task that postpones its own run uses up no attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import ops
from holdfast.domain.errors import RunEnded, RunNotFound
from holdfast.domain.ids import new_id
from holdfast.domain.reasons import ReasonCode
from holdfast.domain.settling import HandedBack
from holdfast.domain.values import Dependency
from tests.timeline import Timeline

HOUR = timedelta(hours=1)


@pytest.mark.every_driver
def test_postponed_run_is_claimed_only_after_its_time(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.perform(lambda: ops.postpone(run, HOUR, "ann"))
    worker = timeline.worker("a", lease=timedelta(days=1))
    assert worker.claim() == []
    timeline.later(minutes=59)
    timeline.promote()
    assert worker.claim() == []
    timeline.later(minutes=2)
    timeline.promote()
    assert [claim.run_id for claim in worker.claim()] == [run]


def test_postponing_one_run_does_not_affect_others(timeline: Timeline) -> None:
    run, other = timeline.submit(run_after=HOUR), timeline.submit(run_after=HOUR)
    timeline.perform(lambda: ops.postpone(run, 2 * HOUR, "ann"))
    timeline.later(minutes=61)
    timeline.promote()
    assert [claim.run_id for claim in timeline.worker("a").claim(2)] == [other]


def test_run_that_is_postponed_after_a_failure_keeps_its_attempts(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"max_attempts": 2, "delays": [0]}')
    worker = timeline.worker("a", lease=timedelta(days=1))
    worker.fails(worker.claims(run))
    timeline.perform(lambda: ops.postpone(run, HOUR, "ann"))
    timeline.later(minutes=61)
    timeline.promote()
    claim = worker.claims(run)
    assert claim.number == 2
    worker.fails(claim)
    assert timeline.status(run) == "FAILED"


def test_postponing_again_replaces_the_time(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timedelta(days=1))
    timeline.perform(lambda: ops.postpone(run, HOUR, "ann"))
    timeline.perform(lambda: ops.postpone(run, timedelta(minutes=5), "bob"))
    timeline.later(minutes=6)
    timeline.promote()
    assert [claim.run_id for claim in timeline.worker("a").claim()] == [run]


def test_events_and_why_show_when_and_by_whom_a_run_was_postponed(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.perform(lambda: ops.postpone(run, HOUR, "ann"))
    events = timeline.perform(lambda: ops.events(run))
    assert [event.type for event in events] == ["SUBMITTED", "POSTPONED"]
    assert (events[-1].reason or "").endswith("UTC by ann")
    assert [reason.code for reason in timeline.perform(lambda: ops.explain(run))][:1] == ["postponed"]


def test_events_keep_their_numbers_when_a_postponed_run_continues(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.perform(lambda: ops.postpone(run, timedelta(0), "ann"))
    before = timeline.perform(lambda: ops.events(run))
    timeline.promote()
    worker = timeline.worker("a")
    worker.fails(worker.claims(run))
    timeline.perform(lambda: ops.postpone(run, HOUR, "bob"))
    timeline.cancel(run)
    after = timeline.perform(lambda: ops.events(run))
    assert after[: len(before)] == before
    assert [event.type for event in after] == [
        "SUBMITTED",
        "POSTPONED",
        "CLAIMED",
        "RETRIED",
        "POSTPONED",
        "CANCELLED",
    ]


def test_postponed_run_with_dependencies_waits_for_both(timeline: Timeline) -> None:
    first = timeline.submit()
    run = timeline.submit(depends_on=(Dependency(first, "success"),))
    timeline.perform(lambda: ops.postpone(run, HOUR, "ann"))
    assert timeline.get(run).reason == "dependencies"
    worker = timeline.worker("a", lease=timedelta(days=1))
    worker.succeeds(worker.claims(first))
    timeline.promote()
    assert worker.claim() == []
    timeline.later(minutes=61)
    timeline.promote()
    assert [claim.run_id for claim in worker.claim()] == [run]


def test_running_and_ended_runs_cannot_be_postponed(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    with pytest.raises(RunEnded, match="is RUNNING; only a pending run can be postponed"):
        timeline.perform(lambda: ops.postpone(run, HOUR, "ann"))
    worker.succeeds(claim)
    with pytest.raises(RunEnded, match="is SUCCEEDED"):
        timeline.perform(lambda: ops.postpone(run, HOUR, "ann"))
    assert "POSTPONED" not in [event.type for event in timeline.perform(lambda: ops.events(run))]


def test_unknown_run_cannot_be_postponed(timeline: Timeline) -> None:
    with pytest.raises(RunNotFound):
        timeline.perform(lambda: ops.postpone(new_id(), HOUR, "ann"))


def test_task_that_postpones_its_run_uses_up_no_attempt(timeline: Timeline) -> None:
    run = timeline.submit(policy='{"max_attempts": 1}')
    for _ in range(3):
        worker = timeline.worker("a", lease=timedelta(days=1))
        worker.finish(worker.claims(run), HandedBack(reason=ReasonCode.POSTPONED, delay=60.0))
        assert timeline.status(run) == "PENDING"
        assert worker.claim() == []
        timeline.later(seconds=61)
        timeline.promote()
    events = timeline.perform(lambda: ops.events(run))
    assert [event.type for event in events] == ["SUBMITTED", *["CLAIMED", "POSTPONED"] * 3]
    worker = timeline.worker("b")
    claim = worker.claims(run)
    assert (claim.number, claim.spent) == (4, 1)
    worker.succeeds(claim)
    assert timeline.status(run) == "SUCCEEDED"
