"""Views: a slice of a dataset that is passed as a reference and read where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from holdfast.jobs.datasets import Dataset, Part, dataset_of, described
from holdfast.jobs.datasets.parts import Items, Numbers


class View:
    """A slice of a dataset: `len(view)` rows after the first `offset`. Nothing is read before `read()`."""

    def __init__(self, dataset: Dataset | Callable[[], Dataset], part: Part) -> None:
        self._dataset = dataset
        self.part = part

    @classmethod
    def of(cls, value: Any) -> View:
        """Return a whole list, range or dataset as one view; useful in tests of a task."""
        dataset = dataset_of(value).pinned()
        parts = dataset.parts(1 << 62)
        return cls(dataset, parts[0] if parts else Part(0, 0))

    @property
    def offset(self) -> int:
        """The number of rows before this slice."""
        return self.part.offset

    @property
    def limit(self) -> int:
        """The number of rows the slice had when it was created."""
        return self.part.limit

    def __len__(self) -> int:
        return self.part.limit

    @property
    def dataset(self) -> Dataset:
        """The dataset that this is a slice of."""
        if callable(self._dataset):
            self._dataset = self._dataset()
        return self._dataset

    @property
    def meaning(self) -> str:
        """A sentence that says which rows these are if the data is changed later."""
        return self.dataset.meaning

    def read(self) -> list[Any]:
        """Return the rows of the slice: the values of a list or range, or else a mapping of columns for each row."""
        return self.dataset.read(self.part) if self.part.limit else []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.read())

    def reference(self) -> dict[str, Any]:
        """Return the view as JSON, for parameters or results."""
        inline = self.dataset.inline(self.part)
        if inline is not None:
            return {"$view": inline}
        reference = {"dataset": self.dataset.description(), "offset": self.offset, "limit": self.limit}
        return {"$view": reference | {"place": self.part.place}}

    # The interface of a dataset: a slice can be split again, and its parts are slices of the same dataset.

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
        """Allow the annotation `view: View`: the parameter is a reference, which is opened before the call."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_require_view, core_schema.any_schema())


def _require_view(value: Any) -> Any:
    if isinstance(value, View) or (isinstance(value, dict) and set(value) == {"$view"}):
        return value
    raise ValueError("pass a view as view.reference()")


def open_view(reference: dict[str, Any]) -> View:
    """Return the view of a reference. A reference may contain the rows; otherwise its dataset is opened when read."""
    if "items" in reference:
        return View(Items(reference["items"], reference["offset"]), Part(reference["offset"], len(reference["items"])))
    if "range" in reference:
        numbers = range(*reference["range"])
        return View(Numbers(numbers, reference["offset"]), Part(reference["offset"], len(numbers)))
    part = Part(reference["offset"], reference["limit"], reference.get("place"))
    if "map" in reference:
        map_id = reference["map"]
        return View(lambda: _mapped(map_id), part)
    return View(lambda: described(reference["dataset"]), part)


@lru_cache(maxsize=64)
def _mapped(map_id: str) -> Dataset:
    from holdfast.domain.errors import RunNotFound
    from holdfast.jobs.sync import client
    from holdfast.sql import maps

    found = client().perform(lambda: iter(maps.read(map_id)))
    if found is None:
        raise RunNotFound(f"no map has the id {map_id}")
    return described(found.dataset)
