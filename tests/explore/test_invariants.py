"""Tests of the invariants: each detects a history that violates it, and none rejects a valid one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.domain.records import EventRecord
from tests.explorer.history import Ended, History, Noted
from tests.explorer.invariants import INVARIANTS, counters_are_exact

START = datetime(2026, 1, 1, 10, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def attempt(number: int, status: str, outcome: str | None, claimed: float, finished: float, **other: object) -> Ended:
    result = '"x"' if status == "SUCCEEDED" else None
    lost = status == "LOST"
    made = Ended(
        number, status, outcome, "worker", at(claimed), at(finished), None, result, None, None, None,
        at(finished if lost else finished + 60),
    )  # fmt: skip
    return replace(made, **other)


def event(seq: int, kind: str, old: str | None, new: str | None, when: float, number: int = 0) -> EventRecord:
    return EventRecord(seq, kind, old, new, None, at(when), number)


def good() -> History:
    """A run that failed once, waited, was lost once, and then succeeded."""
    return History(
        "run",
        exists=True,
        status="SUCCEEDED",
        created_at=at(0),
        max_attempts=3,
        attempts=[
            attempt(1, "FAILED", None, 1, 2),
            attempt(2, "LOST", None, 10, 80),
            attempt(3, "SUCCEEDED", "SUCCEEDED", 81, 82),
        ],
        events=[
            event(1, "SUBMITTED", None, "PENDING", 0),
            event(2, "CLAIMED", "PENDING", "RUNNING", 1, 1),
            event(3, "RETRIED", "RUNNING", "PENDING", 2, 1),
            event(4, "CLAIMED", "PENDING", "RUNNING", 10, 2),
            event(5, "LOST", "RUNNING", "PENDING", 80, 2),
            event(6, "CLAIMED", "PENDING", "RUNNING", 81, 3),
            event(7, "SUCCEEDED", "RUNNING", "SUCCEEDED", 82, 3),
        ],
    )


def complaints(run: History) -> set[str]:
    return {name for name, check in INVARIANTS.items() if list(check(run))}


def second(run: History, **changes: object) -> None:
    run.attempts[1] = replace(run.attempts[1], **changes)


def last(run: History, **changes: object) -> None:
    run.attempts[2] = replace(run.attempts[2], **changes)


def with_event(run: History, position: int, **changes: object) -> None:
    run.events[position] = run.events[position]._replace(**changes)


def stuck(run: History) -> None:
    run.status, run.places = "RUNNING", ["leases"]


def twice(run: History) -> None:
    run.attempts.append(attempt(0, "CANCELLED", "CANCELLED", 83, 84, claimed_at=None, worker_id=None))


def asked_to_stop(run: History) -> None:
    run.events.append(event(8, "CANCEL_REQUESTED", None, None, 81.5, 3))


def withheld(run: History) -> None:
    run.max_attempts, run.status = 5, "FAILED"
    last(run, status="LOST", outcome="FAILED", result=None, expires_at=at(82))


CORRUPTIONS: dict[str, Callable[[History], object]] = {
    "i9_leases_do_not_overlap": lambda run: last(run, claimed_at=at(79)),
    "i9_an_attempt_ends_after_its_claim": lambda run: last(run, claimed_at=at(83)),
    "i10_attempts_count_without_gap": lambda run: last(run, number=4),
    "i11_only_a_living_worker_ends_an_attempt": lambda run: last(run, expires_at=at(81.5)),
    "i11_only_under_a_lease_is_anything_noted": lambda run: run.notes.append(Noted("step", "x", 1, at(3))),
    "i16_only_what_a_dead_worker_held_is_lost": lambda run: second(run, expires_at=at(90)),
    "i17_everything_ends": stuck,
    "i19_only_listed_moves_happen": lambda run: with_event(run, 5, from_status="RUNNING"),
    "i20_one_ending_is_in_force": twice,
    "i21_a_success_has_a_result_and_nothing_else_has": lambda run: last(run, result=None),
    "i23_the_budget_is_kept": lambda run: setattr(run, "max_attempts", 2),
    "i23_no_attempt_is_withheld": withheld,
    "i25_nothing_starts_before_its_time": lambda run: second(run, claimed_at=at(6)),
    "i26_after_a_cancel_only_cancelled": asked_to_stop,
    "i33_events_add_up_to_the_status": lambda run: run.events.pop(),
    "i34_events_are_counted_without_gap": lambda run: with_event(run, 6, seq=9),
    "i34_events_never_go_back_in_time": lambda run: with_event(run, 6, at=at(80.5)),
}


def test_valid_history_violates_no_invariant() -> None:
    assert complaints(good()) == set()


def test_every_invariant_has_a_corruption() -> None:
    assert set(CORRUPTIONS) == set(INVARIANTS)


@pytest.mark.parametrize("rule", CORRUPTIONS)
def test_violated_invariant_is_detected(rule: str) -> None:
    run = good()
    CORRUPTIONS[rule](run)
    assert rule in complaints(run)


def test_run_that_starts_too_early_is_detected() -> None:
    run = good()
    run.run_after = at(1.5)
    assert complaints(run) == {"i25_nothing_starts_before_its_time"}


@pytest.mark.parametrize(
    "counted",
    [
        {"created": 1, "retried": 2, "SUCCEEDED": 1},
        {"created": 1, "retried": 2, "SUCCEEDED": 2, "lost": 1},
        {"created": 2, "retried": 2, "SUCCEEDED": 1, "lost": 1},
        {"created": 1, "retried": 2, "SUCCEEDED": 1, "lost": 1, "fenced": 1},
        {},
    ],
)
def test_wrong_counter_is_detected(counted: dict[str, int]) -> None:
    right = {"created": 1, "retried": 2, "SUCCEEDED": 1, "lost": 1, "lag": 1}
    assert list(counters_are_exact([good()], right)) == []
    assert len(list(counters_are_exact([good()], counted))) == 1
