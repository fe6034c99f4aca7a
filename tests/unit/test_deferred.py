"""Results that wait for locks of other transactions: which are deferred, and when they are checked again."""

from __future__ import annotations

from math import inf

from holdfast.domain.states import AttemptStatus
from holdfast.domain.values import AttemptRef, Settlement
from holdfast.sql.locks import Blocked
from holdfast.worker.pending_results import CHECKED_BATCHES, Deferred

JOBS = {"a1": "a", "a2": "a", "b1": "b"}


def result(run_id: str) -> Settlement:
    return Settlement(AttemptRef(run_id, 1), AttemptStatus.SUCCEEDED, None)


def test_later_results_of_a_locked_job_are_deferred_and_those_of_other_jobs_are_not() -> None:
    deferred = Deferred()
    deferred.add_locked([result("a1")], [Blocked("a1", "a", True)])
    free = deferred.hold_back([result("a2"), result("b1"), result("alone")], JOBS.get)
    assert [one.ref.run_id for one in free] == ["b1", "alone"]
    assert [one.ref.run_id for one in deferred.everything()] == ["a1", "a2"]
    assert not deferred.elsewhere


def test_a_lock_that_is_not_on_a_job_defers_no_result_but_is_checked_for() -> None:
    deferred = Deferred()
    deferred.add_locked([result("a1")], [Blocked("a1", "a", False)])
    assert deferred.hold_back([result("a2")], JOBS.get) == [result("a2")]
    assert deferred.elsewhere


def test_results_are_checked_before_writing_until_several_batches_met_no_lock() -> None:
    deferred = Deferred()
    deferred.add_locked([result("a1")], [Blocked("a1", "a", False)])
    for _ in range(CHECKED_BATCHES - 1):
        deferred.note_unblocked()
    assert deferred.elsewhere
    deferred.note_unblocked()
    assert not deferred.elsewhere
    assert [one.ref.run_id for one in deferred.everything()] == ["a1"]


def test_a_result_that_is_blocked_again_causes_no_more_checks() -> None:
    deferred = Deferred()
    deferred.add_locked([result("a1")], [Blocked("a1", "a", False)])
    for _ in range(CHECKED_BATCHES):
        deferred.note_unblocked()
    deferred.take()
    deferred.add_locked([result("a1")], [Blocked("a1", "a", False)], again=True)
    assert not deferred.elsewhere


def test_results_taken_for_another_check_defer_no_other_results() -> None:
    deferred = Deferred()
    deferred.add_locked([result("a1")], [Blocked("a1", "a", True), Blocked("b1", "b", False)])
    deferred.add_unexplained([result("b1")])
    deferred.add_refused(result("alone"))
    assert len(deferred) == 3
    locked, unexplained, refused = deferred.take()
    assert [one.ref.run_id for one in (*locked, *unexplained, *refused)] == ["a1", "b1", "alone"]
    assert len(deferred) == 0
    assert deferred.due_at == inf
    assert deferred.hold_back([result("a2")], JOBS.get) == [result("a2")]


def test_results_that_are_deferred_later_do_not_postpone_the_check_of_the_first() -> None:
    deferred = Deferred()
    deferred.add_locked([result("a1")])
    due_at = deferred.due_at
    deferred.add_locked([result("a2")])
    deferred.add_unexplained([result("b1")])
    deferred.add_refused(result("alone"))
    assert deferred.due_at == due_at
