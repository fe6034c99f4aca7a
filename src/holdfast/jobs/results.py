"""The results of a map for its join: in the order of the slices, loaded one page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import orjson

from holdfast.domain.errors import Fatal, ResultPruned
from holdfast.domain.ids import slice_ids
from holdfast.domain.records import ResultRecord

PAGE = 500

LoadPage = Callable[[Sequence[str]], Sequence[tuple[Any, ...]]]
LoadStored = Callable[[ResultRecord], bytes]


class Results(Sequence[Any]):
    """The results of the runs of a map. At most one page is in memory."""

    def __init__(self, map_id: str, total: int, load_page: LoadPage, load_stored: LoadStored) -> None:
        self._ids = slice_ids(map_id, total)
        self._load_page = load_page
        self._load_stored = load_stored
        self._first = 0
        self._page: Sequence[tuple[Any, ...]] = ()

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        wanted = range(len(self._ids))[index]
        return self._at(wanted) if isinstance(wanted, int) else [self._at(one) for one in wanted]

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, len(self._ids), PAGE):
            for row in self._read(first):
                yield dereferenced(orjson.loads(self._text(row)))

    def __repr__(self) -> str:
        return f"<Results of {len(self._ids)} runs>"

    def _at(self, index: int) -> Any:
        if not self._first <= index < self._first + len(self._page):
            self._first = index - index % PAGE
            self._page = self._read(self._first)
        return dereferenced(orjson.loads(self._text(self._page[index - self._first])))

    def _read(self, first: int) -> Sequence[tuple[Any, ...]]:
        ids = self._ids[first : first + PAGE]
        found = self._load_page(ids)
        if [row[0] for row in found] != ids:
            missing = sorted(set(ids) - {row[0] for row in found})
            raise ResultPruned(f"{len(missing)} runs of the map have no result, including {missing[0]}")
        return found

    def _text(self, row: tuple[Any, ...]) -> bytes | str:
        _, text, ref, size, sha256 = row
        return text if ref is None else self._load_stored(ResultRecord(None, ref, size, sha256))


def dereferenced(value: Any) -> Any:
    """Return the view, dataset or map if a result is a reference to one, or else the value itself."""
    if isinstance(value, dict) and len(value) == 1:
        if "$view" in value:
            from holdfast.jobs.views import open_view

            return open_view(value["$view"])
        if "$dataset" in value:
            from holdfast.jobs.datasets import dataset_of

            return dataset_of(value)
        if "$map" in value:
            from holdfast.jobs.handles import MapHandle

            return MapHandle.of(value)
    return value


def open_results(reference: dict[str, Any]) -> Results:
    """Return the results that a join is called with."""
    from holdfast.jobs.sync import client
    from holdfast.sql import maps

    connected = client()
    stored = connected.perform(lambda: iter(maps.read(reference["map"])))
    if stored is None or stored.total != reference["total"]:
        found = "does not exist" if stored is None else f"has {stored.total} slices"
        raise Fatal(f"the join was created for {reference['total']} slices, but map {reference['map']} {found}")

    def load_page(ids: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        return connected.perform(lambda: iter(maps.results(ids)))

    return Results(reference["map"], reference["total"], load_page, connected.runtime.load_result)
