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
from holdfast.domain.ids import derived_id, new_id, new_ids, numbered_id, parse_id, series, slice_ids


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


def test_a_clock_that_is_set_back_makes_no_earlier_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_id()
    real = time.time_ns
    monkeypatch.setattr(ids.time, "time_ns", lambda: real() - 3_600_000_000_000)
    assert before < new_id() < new_id()


def test_a_derived_id_is_the_same_whenever_it_is_asked_for() -> None:
    parent = new_id()
    assert derived_id(parent, "child") == derived_id(parent, "child")
    assert derived_id(parent, "child") != derived_id(parent, "other")
    assert derived_id(parent, "child") != derived_id(new_id(), "child")
    child = UUID(derived_id(parent, "child"))
    assert (child.version, child.int >> 80) == (7, UUID(parent).int >> 80), "it lies in the same month"


def test_numbered_ids_sort_by_their_numbers_between_first_and_derived_ones() -> None:
    job = new_id()
    numbers = [0, 1, 2, 255, (1 << 18) - 1, 1 << 18, (1 << 28) - 1]
    made = [numbered_id(job, number, "x") for number in numbers]
    assert made == sorted(made)
    assert all(UUID(one).version == 7 and UUID(one).int >> 80 == UUID(job).int >> 80 for one in made)
    assert series(job, "tasks", 1 << 10, first=True)[-1] < made[0]
    assert made[-1] < min(derived_id(job, f"{n}") for n in range(50))
    assert numbered_id(job, 7, "x") != numbered_id(job, 7, "y") != numbered_id(new_id(), 7, "y")
    with pytest.raises(ValueError, match="below"):
        numbered_id(job, 1 << 28, "x")


def test_slices_of_a_numbered_map_go_on_counting_and_those_of_an_older_one_do_not() -> None:
    job = new_id()
    a_map = numbered_id(job, (1 << 18) - 2, "map")
    slices = slice_ids(a_map, 5)
    assert slices == sorted(set(slices))
    assert numbered_id(job, (1 << 18) - 3, "x") < slices[0] < slices[-1] < numbered_id(job, (1 << 18) + 3, "x")
    older = derived_id(job, "map")
    assert slice_ids(older, 5) == series(older, "chunks", 5)


@given(st.uuids())
def test_an_id_is_read_in_its_usual_form(made: UUID) -> None:
    assert parse_id(str(made)) == parse_id(str(made).upper()) == parse_id(made) == str(made)


@pytest.mark.parametrize(
    "text", ["", "x", None, 7, b"", "01890a5dac96774bbcceb302099a8057", "{01890a5d-ac96-774b-bcce-b302099a80}"]
)
def test_everything_else_is_no_id(text: object) -> None:
    assert parse_id(text) is None


@given(st.text(max_size=40))
def test_no_text_breaks_it(text: str) -> None:
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
