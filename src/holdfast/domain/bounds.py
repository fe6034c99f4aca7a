"""The limits of a number, for annotations of the shipped tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Within:
    """A number from `least` to `most`. Pydantic expands it to `Ge` and `Le` of annotated_types.

    annotated_types is imported only at that point. Workers and Ray jobs load the shipped tasks whenever they start, and
    importing it would take a sixth of the time that importing Holdfast takes.
    """

    __slots__ = ("least", "most")
    __is_annotated_types_grouped_metadata__ = True

    def __init__(self, least: float, most: float | None = None) -> None:
        self.least = least
        self.most = most

    def __repr__(self) -> str:
        return f"Within({self.least}, {self.most})"

    def __iter__(self) -> Iterator[Any]:
        from annotated_types import Ge, Le

        yield Ge(self.least)
        if self.most is not None:
            yield Le(self.most)
