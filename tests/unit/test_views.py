"""Views of sequences, descriptions of tasks, and series of ids, without a database."""

from __future__ import annotations

import itertools
import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import BadInput
from holdfast.domain.ids import derived_id, new_id, parse_id, series
from holdfast.domain.tasks import references
from holdfast.domain.values import NewRun
from holdfast.jobs import View, specs
from holdfast.jobs.datasets import ParquetFiles, Part, PostgresTable, dataset_of, described
from holdfast.jobs.mapping import _view
from holdfast.jobs.specs import Spec
from holdfast.jobs.views import open_view


@given(st.lists(st.integers(-(2**53), 2**53), max_size=60), st.integers(1, 20))
def test_list_is_split_without_gaps_into_inline_slices(items: list[int], size: int) -> None:
    dataset = dataset_of(items)
    views = [open_view(_travelled(dataset.inline(part))) for part in dataset.parts(size)]
    assert [row for view in views for row in view.read()] == items
    assert [view.offset for view in views] == list(range(0, len(items), size))
    assert all(len(view) == len(view.read()) == view.limit for view in views)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-7, 7).filter(bool), st.integers(1, 20))
def test_range_is_split_into_ranges(start: int, stop: int, step: int, size: int) -> None:
    numbers = range(start, stop, step)
    dataset = dataset_of(numbers)
    references = [dataset.inline(part) for part in dataset.parts(size)]
    assert [row for one in references for row in open_view(_travelled(one)).read()] == list(numbers)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 15), st.integers(1, 6))
def test_slice_can_be_split_again(items: list[int], outer: int, inner: int) -> None:
    seen = []
    for part in dataset_of(items).parts(outer):
        view = open_view(_travelled(dataset_of(items).inline(part)))
        for piece in view.parts(inner):
            again = open_view(_travelled(view.inline(piece)))
            assert items[again.offset : again.offset + again.limit] == again.read()
            seen += again.read()
    assert seen == items


def _travelled(reference: Any) -> Any:
    return json.loads(canonicalize(reference)[0])


@given(st.integers(0, 2**40), st.integers(1, 10**6))
def test_the_text_of_a_view_is_canonical(offset: int, limit: int) -> None:
    map_id = new_id()
    for dataset, part in [
        (dataset_of(range(2**41)), Part(offset, limit)),
        (dataset_of([1, 2.5, "ä", None] * 3), Part(2, 7)),
        (ParquetFiles("x"), Part(offset, limit)),
        (PostgresTable("u", "t"), Part(offset, limit, {"from": "é'\"", "before": "b"})),
    ]:
        text = _view(dataset, part, map_id)
        assert canonicalize(json.loads(text))[0] == text
        assert canonicalize(json.loads(text))[1] == sha256(text.encode()).hexdigest()


def test_dataset_is_restored_from_its_reference() -> None:
    table = PostgresTable("postgresql://x", "s.t", key="k", columns=("a", "b"))
    assert dataset_of(_travelled(table.reference())) == table
    view = View(table, Part(5, 6, {"from": "1", "before": "7"}))
    again = open_view(_travelled(view.reference())["$view"])
    assert (again.dataset, again.part) == (table, view.part)
    with pytest.raises(BadInput):
        described({"kind": "unknown"})


def test_only_whole_references_are_opened() -> None:
    assert references({"view": {"$view": {}}, "results": {"$results": {}}}) == {"view", "results"}
    assert references({"view": {"$view": {}, "more": 1}, "results": [1]}) == frozenset()
    assert references({"other": {"$view": {}}}) == frozenset()


@given(st.integers(0, 300))
def test_series_ascend_and_keep_the_time_of_their_origin(count: int) -> None:
    origin = new_id()
    ids, first = series(origin, "chunks", count), series(origin, "tasks", count, first=True)
    assert ids == sorted(set(ids))
    assert all(parse_id(id_) == id_ and id_[:13] == origin[:13] and id_[14] == "7" for id_ in ids + first)
    assert all(a < derived_id(origin, "x") for a in first)
    assert series(origin, "chunks", count) == ids
    assert not set(ids) & set(series(origin, "other", count))


def test_series_has_a_maximum_length() -> None:
    with pytest.raises(ValueError, match="at most"):
        series(new_id(), "x", 1 << 25)


def _spec(key: str, *awaits: str) -> Spec:
    return Spec(NewRun("", "t", "{}", ""), key, [(name, "success") for name in awaits])


@given(st.integers(1, 30), st.data())
def test_only_cycles_are_rejected(size: int, data: st.DataObject) -> None:
    edges = data.draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=60))
    tasks = [_spec(str(n), *{str(b) for a, b in edges if a == n}) for n in range(size)]
    ids = [new_id() for _ in tasks]
    reach = {n: {b for a, b in edges if a == n} for n in range(size)}
    for _ in range(size):
        reach = {n: near | {far for one in near for far in reach[one]} for n, near in reach.items()}
    if any(n in reach[n] for n in range(size)):
        with pytest.raises(BadInput, match="cycle") as caught:
            specs.placed(tasks, ids, new_id(), {})
        named = str(caught.value).rpartition("cycle: ")[2].split(" -> ")
        assert named[0] == named[-1]
        assert all((int(a), int(b)) in edges for a, b in itertools.pairwise(named))
    else:
        runs = specs.placed(tasks, ids, new_id(), {})
        assert {(ids.index(run.id), ids.index(on)) for run in runs for on, _ in run.depends_on} == set(edges)
