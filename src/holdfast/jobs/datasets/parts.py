"""The interface of datasets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, Self

from holdfast.domain.errors import BadInput, HoldfastError, Problem


class DatasetChanged(HoldfastError):
    """The rows that a view refers to no longer exist."""


class Part(NamedTuple):
    """A slice: the number of rows before it, its number of rows, and its position in the dataset."""

    offset: int
    limit: int
    place: Any = None


class Dataset(Protocol):
    """Rows that can be split into parts without being read."""

    @property
    def meaning(self) -> str:
        """A sentence that says which rows a part has if the data is changed later."""

    def description(self) -> dict[str, Any]:
        """Return the dataset as JSON, with its `kind`."""

    def pinned(self) -> Self:
        """Return the dataset with its current state fixed; the description then refers to that state."""

    def parts(self, size: int, within: Part | None = None) -> list[Part]:
        """Split the dataset, or a part of it, into parts of `size` rows; the last may be shorter."""

    def read(self, part: Part) -> list[Any]:
        """Return the rows of a part."""

    def inline(self, part: Part) -> dict[str, Any] | None:
        """Return a part as JSON that contains its rows, or None if the dataset is needed to read it."""


class StoredDataset:
    """A dataset whose rows stay where they are stored, in a table or in files; its parts only refer to them."""

    def description(self) -> dict[str, Any]:
        raise NotImplementedError

    def reference(self) -> dict[str, Any]:
        return {"$dataset": self.description()}

    def pinned(self) -> Self:
        return self

    def inline(self, part: Part) -> None:
        return None


def key_ranges(found: Sequence[tuple[str, int]], highest: str, within: Part | None, **more: Any) -> list[Part]:
    """Return a part for each first key and number of rows.

    A part ends before the next one begins. The last one ends where `within` does, or else at the highest key.
    """
    last = {"upto": highest}
    if within is not None:
        last = {name: within.place[name] for name in ("before", "upto") if name in within.place}
    ends = [*({"before": first} for first, _ in found[1:]), last]
    offset, parts = within.offset if within else 0, []
    for (first, amount), end in zip(found, ends, strict=True):
        parts.append(Part(offset, amount, {"from": first, **more, **end}))
        offset += amount
    return parts


def cut(whole: Part, size: int) -> list[Part]:
    """Return consecutive parts of `size` rows."""
    return [Part(whole.offset + start, min(size, whole.limit - start)) for start in range(0, whole.limit, size)]


def require_columns(name: str, wanted: Iterable[str], known: Collection[str]) -> None:
    """Raise BadInput unless a dataset has all of these columns."""
    missing = [column for column in wanted if column not in known]
    if missing:
        raise BadInput(
            f"{name} has no column {missing[0]}; its columns: {', '.join(sorted(known)) or 'none'}",
            [Problem("/dataset", f"no column {column}") for column in missing],
        )


def require_keys(table: str | None, key: str, missing: int) -> None:
    """Raise BadInput if there are rows without a key: they would be in no part, and would never be read."""
    if missing:
        rows = f"{missing} row{'s' * (missing != 1)}{f' of {table}' if table else ''}"
        raise BadInput(
            f"{rows} {'has' if missing == 1 else 'have'} no {key}, so no slice would include "
            f"{'it' if missing == 1 else 'them'}; choose another key, or exclude such rows with a database view",
            [Problem("/dataset", f"rows without {key}")],
        )


class _Values:
    """A sequence, or a slice of one; `first` is the number of values before it."""

    def __init__(self, values: Sequence[Any], first: int = 0) -> None:
        self.values = values
        self.first = first

    def pinned(self) -> Self:
        return self

    def parts(self, size: int, within: Part | None = None) -> list[Part]:
        return cut(within or Part(self.first, len(self.values)), size)

    def read(self, part: Part) -> list[Any]:
        return list(self._slice(part))

    def _slice(self, part: Part) -> Any:
        return self.values[part.offset - self.first : part.offset - self.first + part.limit]


class Items(_Values):
    """A list of JSON values."""

    meaning = "the values themselves, as they were given"

    def description(self) -> dict[str, Any]:
        return {"kind": "items", "rows": len(self.values)}

    def inline(self, part: Part) -> dict[str, Any]:
        return {"items": self.read(part), "offset": part.offset}


class Numbers(_Values):
    """A range; its slices are ranges too."""

    meaning = "the numbers of the range"

    def description(self) -> dict[str, Any]:
        return {"kind": "range", "rows": len(self.values), "range": _bounds(self.values)}

    def inline(self, part: Part) -> dict[str, Any]:
        return {"range": _bounds(self._slice(part)), "offset": part.offset}


def _bounds(numbers: Any) -> list[int]:
    return [numbers.start, numbers.stop, numbers.step]
