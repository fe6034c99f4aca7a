"""The results of a worker session: which are kept, returned and acknowledged."""

from __future__ import annotations

import pytest

from holdfast.domain.execution import Ended
from holdfast.domain.ids import new_id
from holdfast.domain.settling import HandedBack, NotBegun, Succeeded, settle
from holdfast.domain.states import Status
from holdfast.domain.values import RELEASED, Acknowledgement, Claim
from holdfast.worker.results import AttemptResults
from holdfast.worker.session import WorkerSession


@pytest.fixture
def results() -> AttemptResults:
    return AttemptResults(WorkerSession(), lambda queue, delay: None)


def held(results: AttemptResults, number: int = 1, run_id: str | None = None) -> Claim:
    """A run that the session holds."""
    claim = Claim(
        run_id or new_id(), number, 0, "work", "default", "{}", b"\xab" * 32, None, 0, 0.0, None, None, 0, "-infinity"
    )
    results.session.held[claim.run_id] = claim
    return claim


def test_attempt_whose_claim_arrives_late_is_neither_returned_nor_unknown(results: AttemptResults) -> None:
    """Its lease was reported as unknown by two renewals while the response to the claim was in transit."""
    claim = held(results)
    del results.session.held[claim.run_id]
    results.return_unknown_leases([claim.ref])
    other = held(results)
    results.release([other])
    results.session.held[claim.run_id] = claim
    results.keep([claim])
    assert [one.ref for one in results.pending.take()] == [other.ref]
    assert results.returning == {other.ref}


def test_results_that_wait_are_kept_when_their_runs_are_claimed_again(results: AttemptResults) -> None:
    """Only a run that has not begun is not returned after all."""
    claim, unbegun = held(results), held(results)
    results.report([Ended(claim, Succeeded("1"))])
    results.release([unbegun])
    results.keep([claim])
    assert [one.ref for one in results.pending.take()] == [claim.ref, unbegun.ref]


def test_report_about_a_run_that_is_no_longer_held_is_ignored(results: AttemptResults) -> None:
    first = held(results)
    second = held(results, run_id=first.run_id)
    results.report([Ended(first, Succeeded("old"))])
    assert not results.pending.waiting
    results.report([Ended(second, Succeeded("new"))])
    assert [one.result for one in results.pending.take()] == ["new"]


def test_run_that_has_not_begun_is_not_held_while_it_is_returned(results: AttemptResults) -> None:
    claim = held(results)
    results.report([Ended(claim, NotBegun())])
    assert (results.session.held, results.returning) == ({}, {claim.ref})


def test_acknowledged_return_does_not_end_the_attempt_that_was_claimed_again(results: AttemptResults) -> None:
    claim = held(results)
    results.release([claim])
    returned = results.pending.take()
    again = held(results, run_id=claim.run_id)
    results.settled(returned, [Acknowledgement(claim.ref, True, RELEASED, None)])
    assert results.session.held == {again.run_id: again}
    assert results.returning == set()


@pytest.mark.parametrize("accepted", [True, False])
def test_cancelled_return_does_not_end_the_attempt_that_was_claimed_again(
    results: AttemptResults, accepted: bool
) -> None:
    """A run with a cancel request ends instead of being returned; the acknowledgement is about the earlier claim."""
    claim = held(results)
    results.release([claim])
    returned = results.pending.take()
    again = held(results, run_id=claim.run_id)
    outcome = Status.CANCELLED if accepted else None
    results.settled(returned, [Acknowledgement(claim.ref, accepted, "CANCELLED", outcome)])
    assert results.session.held == {again.run_id: again}


def test_acknowledgement_of_an_earlier_attempt_does_not_end_a_later_one(results: AttemptResults) -> None:
    first = held(results)
    second = held(results, number=2, run_id=first.run_id)
    settlement = settle(first, HandedBack(), 0.0)
    results.settled([settlement], [Acknowledgement(first.ref, True, "CANCELLED", None)])
    assert results.session.held == {second.run_id: second}
