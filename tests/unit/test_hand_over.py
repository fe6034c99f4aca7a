"""When a worker lists itself among those that wait for a run, and when it looks for what it was given."""

from __future__ import annotations

from math import inf
from time import monotonic
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from holdfast.domain.doorbell import Address
from holdfast.domain.ids import new_id
from holdfast.domain.values import Claim, Position
from holdfast.sql.waiting_workers import Given, Listed
from holdfast.worker.hand_over import LOST_AFTER, PAUSE, QUIET, HandOver
from holdfast.worker.results import AttemptResults
from holdfast.worker.round_trips import Answer, ExchangeRequest
from holdfast.worker.session import WorkerSession

ADDRESS = Address("holdfast_of_a_test", 1)
NOW = 1000.0


@pytest.fixture
def results() -> AttemptResults:
    return AttemptResults(WorkerSession(), lambda queue, delay: None)


@pytest.fixture
def listener() -> Any:
    return SimpleNamespace(address=ADDRESS)


@pytest.fixture
def hand_over(listener: Any) -> HandOver:
    options: Any = SimpleNamespace(queues=None, until_empty=False, listener=listener)
    return HandOver(options)


def planned(
    hand_over: HandOver, now: float = NOW, *, free: bool = True, overlaps: bool = False, **given: Any
) -> ExchangeRequest:
    request = ExchangeRequest("worker", **given)
    hand_over.plan(request, now, free=free, held=0, overlaps=overlaps)
    return request


def wait_for_a_run(hand_over: HandOver) -> None:
    """List the worker."""
    request = planned(hand_over)
    assert request.wait == ADDRESS
    hand_over.learn(request, Answer(listed=Listed(waits=True, found=False)), NOW)
    assert hand_over.listed == ADDRESS


def claim() -> Claim:
    return Claim(new_id(), 1, 0, "work", "default", "{}", b"\xab" * 32, None, 0, 0.0, None, None, 0, "-infinity")


def notification(results: AttemptResults, given: Claim) -> str:
    row = given._replace(payload_hash=given.payload_hash.hex())  # type: ignore[arg-type]
    return results.session.id + orjson.dumps(list(row)).decode()


def test_run_is_received_and_the_worker_no_longer_waits(hand_over: HandOver, results: AttemptResults) -> None:
    wait_for_a_run(hand_over)
    given = claim()
    assert hand_over.receive(notification(results, given), results) == [given]
    assert hand_over.listed is None


@pytest.mark.parametrize("known", ["found before", "held"])
def test_late_notification_makes_the_worker_look_and_does_not_end_its_new_wait(
    hand_over: HandOver, results: AttemptResults, known: str
) -> None:
    """If it listed itself again without a look, it would seem to wait although it was given another run meanwhile."""
    given = claim()
    if known == "held":
        results.session.held[given.run_id] = given
    else:
        assert hand_over.find(Given(waits=False, claims=[given]), results) == [given]
    wait_for_a_run(hand_over)
    assert hand_over.receive(notification(results, given), results) == []
    assert hand_over.listed == ADDRESS
    request = planned(hand_over)
    assert (request.given, request.wait) == (True, None)


def test_run_that_is_too_large_for_a_notification_is_looked_for(hand_over: HandOver, results: AttemptResults) -> None:
    wait_for_a_run(hand_over)
    assert hand_over.receive(results.session.id, results) == []
    assert hand_over.listed is None
    assert planned(hand_over).given


def test_worker_that_looks_for_a_large_run_does_not_list_itself_in_the_same_round_trip(
    hand_over: HandOver, results: AttemptResults
) -> None:
    wait_for_a_run(hand_over)
    before = monotonic()
    hand_over.receive(results.session.id, results)
    hand_over.plan(looks := ExchangeRequest("worker"), before, free=True, held=1, overlaps=False)
    assert looks.given
    assert looks.wait is None


def test_notification_of_another_session_changes_nothing(hand_over: HandOver, results: AttemptResults) -> None:
    wait_for_a_run(hand_over)
    other = AttemptResults(WorkerSession(), lambda queue, delay: None)
    assert hand_over.receive(notification(other, claim()), results) == []
    assert hand_over.listed == ADDRESS


def test_worker_looks_for_what_it_was_given_before_it_waits_again(hand_over: HandOver) -> None:
    """It was given a run just before it left the list; after it has listed itself again, a look finds nothing."""
    wait_for_a_run(hand_over)
    request = planned(hand_over, positions=[Position("default")])
    assert request.leave
    hand_over.learn(request, Answer(left=False), NOW)
    assert planned(hand_over, NOW + LOST_AFTER / 2).wait is None
    request = planned(hand_over, NOW + LOST_AFTER)
    assert (request.given, request.wait) == (True, ADDRESS)


def test_worker_does_not_look_or_move_while_another_round_trip_may_claim_runs(
    hand_over: HandOver, results: AttemptResults, listener: Any
) -> None:
    """What the other round trip has claimed would be taken for a run that was given."""
    wait_for_a_run(hand_over)
    listener.address = Address("holdfast_of_a_test", 2)
    hand_over._look_at = 0.0
    request = planned(hand_over, overlaps=True)
    assert (request.given, request.wait) == (False, None)
    request = planned(hand_over)
    assert (request.given, request.wait) == (True, listener.address)


def test_worker_that_claims_does_not_list_itself_in_the_same_round_trip(hand_over: HandOver) -> None:
    request = planned(hand_over, positions=[Position("default")])
    assert (request.wait, request.leave) == (None, False)


def test_worker_without_a_free_slot_does_not_list_itself(hand_over: HandOver) -> None:
    assert planned(hand_over, free=False).wait is None
    assert hand_over.listed is None


def test_worker_that_looked_and_listed_itself_in_one_round_trip_waits(hand_over: HandOver) -> None:
    """The look comes before the listing, so that it was given runs before says nothing about its new wait."""
    request = planned(hand_over)
    answer = Answer(given=Given(waits=False, claims=[]), listed=Listed(waits=True, found=False))
    hand_over.learn(request, answer, NOW)
    assert hand_over.listed == ADDRESS


def test_worker_that_there_is_work_for_does_not_ask_again_for_a_while(hand_over: HandOver) -> None:
    request = planned(hand_over)
    assert hand_over.learn(request, Answer(listed=Listed(waits=False, found=True)), NOW)
    assert hand_over.listed is None
    assert hand_over.due_at(free=True) == NOW + PAUSE
    assert planned(hand_over, NOW + PAUSE - QUIET - 1).wait is None


def test_worker_that_is_being_given_a_run_looks_for_it(hand_over: HandOver) -> None:
    request = planned(hand_over)
    assert not hand_over.learn(request, Answer(listed=Listed(waits=False, found=False)), NOW)
    assert hand_over.due_at(free=False) == NOW + LOST_AFTER


def test_worker_without_an_address_does_not_wait(hand_over: HandOver, listener: Any) -> None:
    listener.address = None
    assert hand_over.due_at(free=True) == inf
    assert planned(hand_over).wait is None


def test_known_runs_are_not_taken_for_given_ones(hand_over: HandOver, results: AttemptResults) -> None:
    held, ended, unknown = claim(), claim(), claim()
    results.session.held[held.run_id] = held
    results.release([ended])
    given = Given(waits=False, claims=[held, ended, unknown])
    assert hand_over.find(given, results) == [unknown]
    assert hand_over.receive(notification(results, unknown), results) == []
