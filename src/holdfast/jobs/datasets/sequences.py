"""Python sequences: each slice contains its values, so nothing has to be opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from holdfast.jobs.datasets.parts import Part, cut


class Items:
    """A list of JSON values, or a slice of one; `first` is the number of values before it."""

    meaning = "the values themselves, as they were given"

    def __init__(self, items: Sequence[Any], first: int = 0) -> None:
        self.items = list(items)
        self.first = first

    def description(self) -> dict[str, Any]:
        return {"kind": "items", "rows": len(self.items)}

    def pinned(self) -> Self:
        return self

    def parts(self, size: int, within: Part | None = None) -> list[Part]:
        return cut(within or Part(self.first, len(self.items)), size)

    def read(self, part: Part) -> list[Any]:
        return self.items[part.offset - self.first : part.offset - self.first + part.limit]

    def inline(self, part: Part) -> dict[str, Any]:
        return {"items": self.read(part), "offset": part.offset}


class Numbers:
    """A range; its slices are ranges too."""

    meaning = "the numbers of the range"

    def __init__(self, numbers: range, first: int = 0) -> None:
        self.numbers = numbers
        self.first = first

    def description(self) -> dict[str, Any]:
        return {"kind": "range", "rows": len(self.numbers), "range": _bounds(self.numbers)}

    def pinned(self) -> Self:
        return self

    def parts(self, size: int, within: Part | None = None) -> list[Part]:
        return cut(within or Part(self.first, len(self.numbers)), size)

    def read(self, part: Part) -> list[Any]:
        return list(self._slice(part))

    def inline(self, part: Part) -> dict[str, Any]:
        return {"range": _bounds(self._slice(part)), "offset": part.offset}

    def _slice(self, part: Part) -> range:
        return self.numbers[part.offset - self.first : part.offset - self.first + part.limit]


def _bounds(numbers: range) -> list[int]:
    return [numbers.start, numbers.stop, numbers.step]
