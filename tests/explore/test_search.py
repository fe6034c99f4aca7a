"""The search itself: it plays every schedule once, and the same ones every time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.explorer import search
from tests.explorer.schedule import Schedule, parse
from tests.explorer.search import Choose


def playing(*steps: int) -> search.Callable[[Choose], str]:
    """Actors named a, b, ... that take these numbers of steps and never wait."""

    def play(choose: Choose) -> str:
        left = dict(zip("abcd", steps, strict=False))
        taken = ""
        while options := [name for name, count in left.items() if count]:
            step = choose(options)
            left[step] -= 1
            taken += step
        return taken

    return play


@pytest.mark.parametrize("steps", [(1, 1), (3, 2), (5, 5), (4, 6), (2, 2, 1), (4, 4, 1), (0, 3)])
def test_every_interleaving_is_played_once(steps: Sequence[int]) -> None:
    played = list(search.every(playing(*steps)))
    assert len(played) == len(set(played)) == search.interleavings(*steps)


def test_number_of_interleavings_matches_the_closed_formula() -> None:
    """The counts of the literature: two of five steps, two of eight, three of four."""
    assert [search.interleavings(5, 5), search.interleavings(8, 8), search.interleavings(4, 4, 4)] == [
        252,
        12870,
        34650,
    ]


def test_waiting_actor_is_not_scheduled() -> None:
    """A lock: the actor that takes its first step blocks the other until it has taken its second."""

    def play(choose: Choose) -> str:
        left, taken, holder = {"a": 2, "b": 2}, "", None
        while options := [name for name in left if left[name] and holder in (None, name)]:
            step = choose(options)
            left[step] -= 1
            holder = step if left[step] else None
            taken += step
        return taken

    assert list(search.every(play)) == ["aabb", "bbaa"]


def test_a_schedule_can_be_replayed() -> None:
    assert search.replayed(playing(3, 3), "bbaaba") == "bbaaba"
    with pytest.raises(search.Diverged):
        search.replayed(playing(1, 3), "aa")


def test_sample_is_deterministic() -> None:
    def play(choose: Choose) -> str:
        taken: list[str] = []
        while len(taken) < 6:
            taken.append(choose(["a", "b"] if any(len(t) > 1 for t in taken) else ["a", "b", "a!", "b?"]))
        return "".join(taken)

    drawn = list(search.sampled(play, "seed", 50, 5))
    assert drawn == list(search.sampled(play, "seed", 50, 5))
    assert len(set(drawn)) > 40
    assert all(("!" in schedule) + ("?" in schedule) == 1 for schedule in drawn)


@pytest.mark.parametrize("text", ["succeed+cancel@leased:ab?b/t", "claim+claim@ready:", "a+b@c:a!b"])
def test_schedule_is_written_and_parsed_as_a_line_of_text(text: str) -> None:
    assert str(parse(text)) == text
    assert isinstance(parse(text), Schedule)


@pytest.mark.parametrize("text", ["", "succeed+cancel", "succeed+cancel@leased:x", "+@:", "a+b@c:a!!"])
def test_invalid_schedule_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a schedule"):
        parse(text)
