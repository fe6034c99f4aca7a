"""Attempts that jobs on a cluster execute, supervised by workers that do not hold their leases."""

from __future__ import annotations

import pytest

from holdfast.domain.execution import RemoteAttempt
from holdfast.domain.ids import new_id
from holdfast.domain.values import AttemptRef, Claim
from holdfast.sql import logs, remote_attempts, take_over
from tests.timeline import Timeline

ADDRESS = "http://127.0.0.1:8265"


def begun(timeline: Timeline, run: str, submission_id: str = "s1") -> Claim:
    """Return the attempt of a run that the worker `job` has taken over."""
    worker = timeline.worker("a")
    claim = worker.claims(run)
    details = {"ray_submission_id": submission_id, "ray_address": ADDRESS}
    timeline.ask(take_over.describe(worker.id, claim.ref, details))
    return timeline.worker("job").takes_over(claim.ref, worker)


def look(timeline: Timeline) -> list[RemoteAttempt]:
    return timeline.ask(remote_attempts.look_after(ADDRESS, 5.0, 10))


@pytest.mark.every_driver
def test_attempt_is_checked_by_one_worker_until_the_interval_has_passed(timeline: Timeline) -> None:
    claim = begun(timeline, timeline.submit())
    (attempt,) = look(timeline)
    assert (attempt.ref, attempt.submission_id, attempt.log_copied, attempt.cancelled_for) == (claim.ref, "s1", 0, None)
    assert look(timeline) == []
    timeline.later(seconds=6)
    assert [one.ref for one in look(timeline)] == [claim.ref]


def test_attempt_that_was_not_taken_over_is_left_to_its_worker(timeline: Timeline) -> None:
    worker = timeline.worker("a")
    claim = worker.claims(timeline.submit())
    timeline.ask(take_over.describe(worker.id, claim.ref, {"ray_submission_id": "s1", "ray_address": ADDRESS}))
    assert look(timeline) == []


def test_attempts_on_other_clusters_are_ignored(timeline: Timeline) -> None:
    begun(timeline, timeline.submit())
    assert timeline.ask(remote_attempts.look_after("http://127.0.0.1:1", 5.0, 10)) == []


def test_attempt_shows_the_time_since_its_cancellation(timeline: Timeline) -> None:
    run = timeline.submit()
    begun(timeline, run)
    timeline.cancel(run)
    timeline.later(seconds=7)
    (attempt,) = look(timeline)
    assert (attempt.cancelled_for or 0.0) >= 7.0


@pytest.mark.every_driver
def test_lines_that_two_workers_copy_concurrently_are_added_once(timeline: Timeline) -> None:
    run = timeline.submit()
    begun(timeline, run)
    (attempt,) = look(timeline)
    lines = [("info", "one"), ("error", "two")]
    assert timeline.ask(remote_attempts.note(attempt, 8, lines, {"ray_node_id": "n1"})) == 1
    assert timeline.ask(remote_attempts.note(attempt, 8, lines, {})) == 0
    found = timeline.ask(logs.of_run(run))
    assert [(line.attempt, line.level, line.message) for line in found] == [(1, "info", "one"), (1, "error", "two")]
    assert timeline.attempts(run)[0].ray_node_id == "n1"


def test_nothing_is_recorded_about_another_job_or_an_ended_attempt(timeline: Timeline) -> None:
    run = timeline.submit()
    claim = begun(timeline, run)
    (attempt,) = look(timeline)
    assert timeline.ask(remote_attempts.note(attempt._replace(submission_id="s2"), 8, [("info", "one")], {})) == 0
    timeline.worker("job").succeeds(claim)
    assert timeline.ask(remote_attempts.note(attempt, 8, [("info", "one")], {})) == 0
    assert timeline.ask(logs.of_run(run)) == []


@pytest.mark.every_driver
def test_ended_attempts_are_returned_and_those_of_unknown_runs_are_not(timeline: Timeline) -> None:
    ended, running = timeline.submit(), timeline.submit()
    first = begun(timeline, ended, "s1")
    timeline.worker("job").succeeds(first)
    second = begun(timeline, running, "s2")
    refs = [first.ref, second.ref, AttemptRef(new_id(), 1)]
    assert timeline.ask(remote_attempts.over(refs)) == {first.ref}
