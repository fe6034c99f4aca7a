"""Ids: version 7 UUIDs in rising order, made by whoever asks."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain import ids
from holdfast.domain.ids import (
    LAST_PLACE,
    derived_id,
    map_id_after,
    new_id,
    new_ids,
    parse_id,
    place_of,
    placed_id,
    series,
    slice_ids,
)


def test_an_id_is_a_version_7_uuid_of_now() -> None:
    before = time.time_ns() // 1_000_000
    made = UUID(new_id())
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert before <= made.int >> 80 <= after + 1


def test_ids_rise_and_never_repeat() -> None:
    made = [new_id() for _ in range(1000)] + new_ids(5000) + [new_id()]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_made_by_many_threads_are_different() -> None:
    start = threading.Barrier(8)

    def make(_: int) -> list[str]:
        start.wait()
        return [*new_ids(500), *(new_id() for _ in range(500))]

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(make, range(8)))
    assert all(share == sorted(share) for share in made)
    assert len({one for share in made for one in share}) == 8000


def test_clock_set_back_gives_no_earlier_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_id()
    real = time.time_ns
    monkeypatch.setattr(ids.time, "time_ns", lambda: real() - 3_600_000_000_000)
    assert before < new_id() < new_id()


def test_derived_id_is_deterministic() -> None:
    parent = new_id()
    assert derived_id(parent, "child") == derived_id(parent, "child")
    assert derived_id(parent, "child") != derived_id(parent, "other")
    assert derived_id(parent, "child") != derived_id(new_id(), "child")
    child = UUID(derived_id(parent, "child"))
    assert (child.version, child.int >> 80) == (7, UUID(parent).int >> 80), "it lies in the same month"


def test_placed_ids_sort_by_their_places_after_the_first_ones() -> None:
    job = new_id()
    places = [0, 1, 2, 255, (1 << 17) - 1, 1 << 17, LAST_PLACE]
    made = [placed_id(job, place, "x") for place in places]
    assert made == sorted(made)
    assert list(map(place_of, made)) == places
    assert all(UUID(one).version == 7 and UUID(one).int >> 80 == UUID(job).int >> 80 for one in made)
    first = series(job, "tasks", 1 << 10, first=True)
    assert (place_of(first[-1]), first[-1] < made[0]) == (-1, True)
    assert placed_id(job, 7, "x") != placed_id(job, 7, "y") != placed_id(new_id(), 7, "y")
    assert place_of(placed_id(job, LAST_PLACE + 5, "x")) == LAST_PLACE


def test_maps_are_given_ids_whose_slices_come_one_after_the_other() -> None:
    job, place = new_id(), -1
    for number in range(200):
        slices = slice_ids(map_id_after(place, job, f"{number}"), 3)
        assert slices == sorted(slices)
        assert place < place_of(slices[0]) == place_of(slices[-1])
        place = place_of(slices[-1])
    assert slice_ids(map_id_after(LAST_PLACE, job, "late"), 1), "where no place is left, anywhere"


@given(st.uuids())
def test_an_id_is_read_in_its_usual_form(made: UUID) -> None:
    assert parse_id(str(made)) == parse_id(str(made).upper()) == parse_id(made) == str(made)


@pytest.mark.parametrize(
    "text", ["", "x", None, 7, b"", "01890a5dac96774bbcceb302099a8057", "{01890a5d-ac96-774b-bcce-b302099a80}"]
)
def test_other_texts_are_not_ids(text: object) -> None:
    assert parse_id(text) is None


@given(st.text(max_size=40))
def test_any_text_can_be_parsed_as_an_id_or_not(text: str) -> None:
    found = parse_id(text)
    assert found is None or found == text.lower()


YEAR = 365 * 24 * 3600 * 1_000_000_000


@pytest.fixture
def unlearned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_since_boot", None)
    monkeypatch.setattr(ids, "_last", 0)


@pytest.mark.usefixtures("unlearned")
@pytest.mark.parametrize("off", [YEAR, -YEAR])
def test_a_clock_that_is_a_year_off_makes_ids_of_the_learned_time(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    monkeypatch.setattr(ids.time, "time_ns", lambda: real() + off)
    early = new_id()
    ids.learn_time(real())
    made = [new_id(), new_id()]
    assert abs((UUID(made[0]).int >> 80) - real() // 1_000_000) < 60_000
    assert abs((UUID(early).int >> 80) - real() // 1_000_000) > 60_000
    assert made == sorted(made)


@pytest.mark.usefixtures("unlearned")
def test_a_clock_that_is_set_later_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    ids.learn_time(real())
    before = new_id()
    monkeypatch.setattr(ids.time, "time_ns", lambda: real() + YEAR)
    made = new_id()
    assert before < made
    assert abs((UUID(made).int >> 80) - real() // 1_000_000) < 60_000


@pytest.mark.usefixtures("unlearned")
def test_a_clock_that_is_right_is_used_as_it_is() -> None:
    ids.learn_time(time.time_ns() - 1_000_000_000)
    before = time.time_ns() // 1_000_000
    assert before <= UUID(new_id()).int >> 80
