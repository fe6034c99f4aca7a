"""Steps and log lines: written only by the attempt that holds the lease."""

from __future__ import annotations

import pytest

from holdfast.domain.values import AttemptRef, Claim
from holdfast.sql import logs, steps
from holdfast.sql.logs import LogLine
from tests.timeline import Timeline, Worker


def keep(timeline: Timeline, worker: Worker, claim: Claim | AttemptRef, result: str = '"first"') -> bool:
    ref = claim.ref if isinstance(claim, Claim) else claim
    return bool(timeline.ask(steps.record(worker.id, ref, "load", result)))


def write(timeline: Timeline, worker: Worker, claim: Claim) -> int:
    return timeline.ask(logs.add(worker.id, [LogLine(claim.ref, "INFO", "hello", 0.0)]))


@pytest.mark.every_driver
def test_step_is_found_by_the_next_attempt(timeline: Timeline) -> None:
    run, worker = timeline.submit(), timeline.worker("a")
    claim = worker.claims(run)
    assert timeline.ask(steps.find(run, "load")) is None
    assert keep(timeline, worker, claim)
    worker.hands_back(claim)
    assert timeline.ask(steps.find(run, "load")) == '"first"'


def test_first_result_of_a_step_is_kept(timeline: Timeline) -> None:
    run, worker = timeline.submit(), timeline.worker("a")
    claim = worker.claims(run)
    assert keep(timeline, worker, claim)
    assert keep(timeline, worker, claim, '"second"')
    assert timeline.ask(steps.find(run, "load")) == '"first"'


def test_step_after_the_lease_expired_is_rejected(timeline: Timeline) -> None:
    run, worker = timeline.submit(), timeline.worker("a")
    claim = worker.claims(run)
    timeline.later(seconds=61)
    assert not keep(timeline, worker, claim)
    assert timeline.ask(steps.find(run, "load")) is None


def test_step_of_an_earlier_attempt_is_rejected(timeline: Timeline) -> None:
    run, worker = timeline.submit(), timeline.worker("a")
    earlier = worker.claims(run)
    worker.hands_back(earlier)
    worker.claims(run)
    assert not keep(timeline, worker, earlier)


def test_step_by_another_worker_is_rejected(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    assert not keep(timeline, timeline.worker("b"), claim)


@pytest.mark.every_driver
def test_log_lines_are_stored_while_the_lease_is_valid(timeline: Timeline) -> None:
    run, worker = timeline.submit(), timeline.worker("a")
    claim = worker.claims(run)
    assert write(timeline, worker, claim) == 1
    timeline.later(seconds=61)
    assert write(timeline, worker, claim) == 0
    assert [line.message for line in timeline.ask(logs.of_run(run))] == ["hello"]


def test_log_line_of_an_earlier_attempt_is_rejected(timeline: Timeline) -> None:
    run, worker = timeline.submit(), timeline.worker("a")
    earlier = worker.claims(run)
    worker.hands_back(earlier)
    worker.claims(run)
    assert write(timeline, worker, earlier) == 0


def test_log_line_by_another_worker_is_rejected(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    assert write(timeline, timeline.worker("b"), claim) == 0
