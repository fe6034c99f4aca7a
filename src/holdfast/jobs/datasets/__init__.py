"""Datasets to map over. Each can be split into parts without reading it, and a part can be read without the rest.

A dataset has a small description; a part has its offset, its length and a position that only the dataset understands.
Both are JSON and are stored with runs. `pinned()` fixes what a description refers to, so that a part has the same rows
later, as far as the storage can guarantee that; `meaning` describes the guarantee.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import BadInput
from holdfast.jobs.datasets.parts import Dataset, DatasetChanged, Items, Numbers, Part

if TYPE_CHECKING:
    from holdfast.jobs.datasets.clickhouse import ClickHouseTable
    from holdfast.jobs.datasets.parquet import ParquetFiles
    from holdfast.jobs.datasets.postgres import PostgresTable

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

# The class of each kind of stored dataset. The module of that kind is imported when the class is first used.
_KINDS = {"postgres": "PostgresTable", "parquet": "ParquetFiles", "clickhouse": "ClickHouseTable"}


def __getattr__(name: str) -> Any:
    for kind, title in _KINDS.items():
        if title == name:
            found = globals()[name] = getattr(import_module(f"holdfast.jobs.datasets.{kind}"), name)
            return found
    raise AttributeError(f"module 'holdfast.jobs.datasets' has no attribute {name!r}")


def described(description: dict[str, Any]) -> Dataset:
    """Return the dataset that a description refers to."""
    options = dict(description)
    kind = _KINDS.get(options.pop("kind", ""))
    if kind is None:
        raise BadInput(f"unknown kind of dataset: {description.get('kind')!r}")
    dataset: Dataset = __getattr__(kind)(**options)
    return dataset


def dataset_of(value: Any) -> Dataset:
    """Return the dataset for a list, a range, a dataset, or a reference to one."""
    if isinstance(value, range):
        return Numbers(value)
    if isinstance(value, list | tuple):
        return Items(list(value))
    if isinstance(value, dict) and "$dataset" in value:
        return described(value["$dataset"])
    if hasattr(value, "parts") and hasattr(value, "pinned"):
        found: Dataset = value
        return found
    raise BadInput(
        f"cannot map over {type(value).__name__}: pass a list, a range, a view or a dataset of holdfast.jobs.datasets"
    )
