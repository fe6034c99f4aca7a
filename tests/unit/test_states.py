"""The table of transitions is consistent."""

from __future__ import annotations

import pytest

from holdfast.domain.states import FINAL, MOVES, REOPENABLE, Status


def reachable(start: Status) -> set[Status]:
    found, front = {start}, [start]
    while front:
        old = front.pop()
        for before, after in MOVES:
            if before is old and after not in found:
                found.add(after)
                front.append(after)
    return found


def test_every_status_can_be_reached_from_the_first() -> None:
    assert reachable(Status.PENDING) == set(Status)


def test_every_run_can_end() -> None:
    for status in Status:
        assert reachable(status) & FINAL


def test_succeeded_run_is_final() -> None:
    assert reachable(Status.SUCCEEDED) == {Status.SUCCEEDED}


def test_final_states_are_left_only_by_reopening() -> None:
    for (old, new), how in MOVES.items():
        if old.final:
            assert (old in REOPENABLE, new, how) == (True, Status.PENDING, "reopen")


def test_running_is_reached_only_by_a_claim() -> None:
    assert {(old, how) for (old, new), how in MOVES.items() if new is Status.RUNNING} == {(Status.PENDING, "claim")}


@pytest.mark.parametrize("status", Status)
def test_every_transition_changes_the_status(status: Status) -> None:
    assert (status, status) not in MOVES
    assert status.final == (status in FINAL)


def test_statuses_match_the_database_values() -> None:
    assert [str(status) for status in Status] == ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
