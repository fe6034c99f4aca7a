"""Python sequences: each slice contains its values, so nothing has to be opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from holdfast.jobs.datasets.parts import Part, cut


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
