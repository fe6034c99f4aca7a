"""Which queues a worker claims from, and from which position."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.domain.ids import new_id
from holdfast.domain.values import Claim, Position
from holdfast.worker.claim_planner import CLAIMS_PER_ROUND, QUEUES_PER_CLAIM, Picker


def claim(queue: str, order: int = 0) -> Claim:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return Claim(new_id(), 1, 0, "task", queue, "{}", b"", None, 0, 0.0, None, None, order, at)


def queues(picker: Picker) -> list[str]:
    return [position.queue for position in picker.positions()]


def test_each_claim_begins_with_the_next_queue() -> None:
    picker = Picker(["a", "b", "c"])
    assert [queues(picker)[0] for _ in range(6)] == ["b", "c", "a", "b", "c", "a"]
    assert sorted(queues(picker)) == ["a", "b", "c"]


def test_a_full_claim_is_continued_where_it_stopped() -> None:
    picker = Picker(["a"])
    last = claim("a", order=-5)
    assert picker.took(picker.positions(), [claim("a"), last], 2)
    assert picker.positions() == [Position("a", -5, "2030-01-01 00:00:00+00:00", last.run_id)]


def test_short_claim_resets_the_position_and_is_repeated_if_it_did_not_begin_at_the_start() -> None:
    picker = Picker(["a"])
    assert not picker.took(picker.positions(), [claim("a")], 2)
    assert picker.took(picker.positions(), [claim("a")] * 2, 2)
    late = picker.positions()
    # Two claims that started late returned few runs: each is worth another claim.
    assert picker.took(late, [], 2)
    assert picker.took(late, [], 2)
    assert picker.positions() == [Position("a")]
    assert not picker.took(picker.positions(), [], 2)


def test_hint_resets_the_position_in_its_queue() -> None:
    picker = Picker(["a", "b"])
    picker.took(picker.positions(), [claim("a"), claim("b")], 2)
    picker.restart(["a"])
    found = {position.queue: position for position in picker.positions()}
    assert found["a"] == Position("a")
    assert found["b"] != Position("b")


def test_position_is_reset_periodically() -> None:
    picker = Picker(["a"])
    picker.took([Position("a")], [claim("a")], 1)
    assert all(picker.positions() != [Position("a")] for _ in range(CLAIMS_PER_ROUND))
    assert picker.positions() == [Position("a")]


def test_worker_without_given_queues_serves_every_queue_it_learns_of() -> None:
    picker = Picker(None)
    assert queues(picker) == []
    picker.add(["x"])
    picker.know(["y", "z"])
    assert sorted(queues(picker)) == ["y", "z"]
    assert picker.serves(["anything"]) == ["anything"]


def test_worker_with_queues_serves_no_other() -> None:
    picker = Picker(["a"])
    picker.add(["x"])
    picker.know(["y"])
    assert queues(picker) == ["a"]
    assert picker.serves(["x", "a"]) == ["a"]


def test_thousands_of_queues_are_served_in_rotation() -> None:
    names = [f"q{number}" for number in range(200)]
    picker = Picker(names)
    seen: set[str] = set()
    for _ in names:
        claimed = queues(picker)
        assert len(claimed) == QUEUES_PER_CLAIM
        seen |= set(claimed)
    assert seen == set(names)
    assert picker.took(picker.positions(), [], 10), "the queues that were not looked at may have runs"
