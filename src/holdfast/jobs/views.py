"""Views: a slice of a dataset that travels as a reference and is read where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from holdfast.jobs.datasets import Dataset, Part, dataset_of, described
from holdfast.jobs.datasets.sequences import Items, Numbers


class View:
    """Some rows of a dataset: `len(view)` of them, after `offset` others. Nothing is read before `read()`."""

    def __init__(self, dataset: Dataset | Callable[[], Dataset], part: Part) -> None:
        self._dataset = dataset
        self.part = part

    @classmethod
    def of(cls, value: Any) -> View:
        """The whole of a list, a range or a dataset as one view; handy in tests of a task."""
        dataset = dataset_of(value).pinned()
        parts = dataset.parts(1 << 62)
        return cls(dataset, parts[0] if parts else Part(0, 0))

    @property
    def offset(self) -> int:
        """How many rows come before this slice."""
        return self.part.offset

    @property
    def limit(self) -> int:
        """How many rows the slice had when it was made."""
        return self.part.limit

    def __len__(self) -> int:
        return self.part.limit

    @property
    def dataset(self) -> Dataset:
        """What this is a slice of."""
        if callable(self._dataset):
            self._dataset = self._dataset()
        return self._dataset

    @property
    def meaning(self) -> str:
        """Which rows these are if others write to the dataset: a sentence."""
        return self.dataset.meaning

    def read(self) -> list[Any]:
        """The rows of the slice: the values of a list or range, else a mapping of columns for each row."""
        return self.dataset.read(self.part) if self.part.limit else []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.read())

    def reference(self) -> dict[str, Any]:
        """The view as JSON, to be put into parameters, or returned as a result."""
        inline = self.dataset.inline(self.part)
        if inline is not None:
            return {"$view": inline}
        told = {"dataset": self.dataset.description(), "offset": self.offset, "limit": self.limit}
        return {"$view": told | {"place": self.part.place}}

    # What a map needs: a slice can be cut again, and its pieces are slices of the same dataset.

    def description(self) -> dict[str, Any]:
        return self.dataset.description()

    def pinned(self) -> View:
        return View(self.dataset.pinned(), self.part)

    def parts(self, size: int, within: Part | None = None) -> list[Part]:
        if not self.part.limit:
            return []
        return self.dataset.parts(size, within or self.part)

    def inline(self, part: Part) -> dict[str, Any] | None:
        return self.dataset.inline(part)

    def __repr__(self) -> str:
        return f"<View of {self.limit} rows from {self.offset} on>"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """A task may say `view: View`: what comes is a reference, and is opened before the call."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_require_view, core_schema.any_schema())


def _require_view(value: Any) -> Any:
    if isinstance(value, View) or (isinstance(value, dict) and set(value) == {"$view"}):
        return value
    raise ValueError("pass a view as view.reference()")


def open_view(told: dict[str, Any]) -> View:
    """The view that a reference stands for. Rows that came along are there; a dataset is opened when it is read."""
    if "items" in told:
        return View(Items(told["items"], told["offset"]), Part(told["offset"], len(told["items"])))
    if "range" in told:
        numbers = range(*told["range"])
        return View(Numbers(numbers, told["offset"]), Part(told["offset"], len(numbers)))
    part = Part(told["offset"], told["limit"], told.get("place"))
    if "map" in told:
        map_id = told["map"]
        return View(lambda: _mapped(map_id), part)
    return View(lambda: described(told["dataset"]), part)


@lru_cache(maxsize=64)
def _mapped(map_id: str) -> Dataset:
    """The dataset that a map was made of."""
    from holdfast.domain.errors import RunNotFound
    from holdfast.jobs.current import client
    from holdfast.sql import maps

    found = client().perform(lambda: iter(maps.read(map_id)))
    if found is None:
        raise RunNotFound(f"no map has the id {map_id}")
    return described(found.dataset)
