"""Datasets: what can be mapped over. Each can be cut into parts without reading it, and a part read without the rest.

A dataset is told by a small description, a part by its offset, its length and a place that only the dataset
understands; both are JSON and travel. `pinned()` settles what a description means from then on, so that a part means
the same rows tomorrow, as far as its storage can promise that; `meaning` says in a sentence how far that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.domain.errors import BadInput
from holdfast.jobs.datasets.clickhouse import ClickHouseTable
from holdfast.jobs.datasets.parquet import File, ParquetFiles
from holdfast.jobs.datasets.parts import Dataset, DatasetChanged, Part
from holdfast.jobs.datasets.postgres import PostgresTable
from holdfast.jobs.datasets.sequences import Items, Numbers

__all__ = [
    "ClickHouseTable",
    "Dataset",
    "DatasetChanged",
    "ParquetFiles",
    "Part",
    "PostgresTable",
    "dataset_of",
    "described",
]


def _parquet(path: Any, columns: Any = (), files: Any = None) -> ParquetFiles:
    return ParquetFiles(path, columns, tuple(File(*file) for file in files) if files is not None else None)


def _clickhouse(order_by: Any, **told: Any) -> ClickHouseTable:
    return ClickHouseTable(order_by=tuple(order_by), **told)


_KINDS: dict[str, Callable[..., Dataset]] = {
    "postgres": PostgresTable,
    "parquet": _parquet,
    "clickhouse": _clickhouse,
}


def described(description: dict[str, Any]) -> Dataset:
    """The dataset that a description tells of."""
    told = dict(description)
    kind = _KINDS.get(told.pop("kind", ""))
    if kind is None:
        raise BadInput(f"no dataset is of the kind {description.get('kind')!r}")
    return kind(**told)


def dataset_of(value: Any) -> Dataset:
    """What a caller wants to map over: a list, a range, a dataset, or the reference of one."""
    if isinstance(value, range):
        return Numbers(value)
    if isinstance(value, list | tuple):
        return Items(value)
    if isinstance(value, dict) and "$dataset" in value:
        return described(value["$dataset"])
    if hasattr(value, "parts") and hasattr(value, "pinned"):
        found: Dataset = value
        return found
    raise BadInput(
        f"cannot map over {type(value).__name__}: give a list, a range, a view, or a dataset of holdfast.jobs.datasets"
    )
