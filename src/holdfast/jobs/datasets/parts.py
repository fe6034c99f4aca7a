"""What every dataset can do."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, Protocol, Self

from holdfast.domain.errors import BadInput, HoldfastError, Problem


class DatasetChanged(HoldfastError):
    """The rows that a view means are not there any more."""


class Part(NamedTuple):
    """A slice: how many rows come before it, how many it has, and where the dataset finds it."""

    offset: int
    limit: int
    place: Any = None


class Dataset(Protocol):
    """Rows that can be cut into parts without being read."""

    @property
    def meaning(self) -> str:
        """What a part means while others write: a sentence."""

    def description(self) -> dict[str, Any]:
        """The dataset as JSON; `kind` says which it is."""

    def pinned(self) -> Self:
        """The dataset as it is now: what its description means does not change any more."""

    def parts(self, size: int, within: Part | None = None) -> list[Part]:
        """Cut it, or a part of it, into parts of `size` rows; the last may be shorter."""

    def read(self, part: Part) -> list[Any]:
        """The rows of a part."""

    def inline(self, part: Part) -> dict[str, Any] | None:
        """A part as JSON that needs no dataset to be read, where the rows themselves can travel; else None."""


def cut(whole: Part, size: int) -> list[Part]:
    """Parts of `size` rows that follow one another."""
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
    """Raise BadInput if there are rows without a key: they would be in no part and would never be read."""
    if missing:
        rows = f"{missing} row{'s' * (missing != 1)}{f' of {table}' if table else ''}"
        raise BadInput(
            f"{rows} {'has' if missing == 1 else 'have'} no {key}, so no slice would include "
            f"{'it' if missing == 1 else 'them'}; choose another key, or exclude such rows with a view",
            [Problem("/dataset", f"rows without {key}")],
        )
