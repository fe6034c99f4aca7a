"""Temporary resources: files and tables that are removed after their job has ended."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from holdfast import ops
from holdfast.domain.errors import BadInput
from holdfast.jobs.datasets import ClickHouseTable, ParquetFiles, PostgresTable, dataset_of
from holdfast.verbs.caller import Caller
from holdfast.verbs.procedures import Procedure
from holdfast.verbs.subjects import job_id as job_id_of
from holdfast.verbs.verb import verb


@verb()
def remove_with_job(
    caller: Caller, /, resource: Any, *, job_id: object = None, keep_for_retry: bool = False
) -> Procedure[None]:
    """Remove a file, a directory or a table after a job has ended: the current job, or the one with `job_id`.

    `resource` is a path, or a dataset: Parquet files, a Postgres table, a ClickHouse table. With `keep_for_retry` it is
    removed only after the job has succeeded, so that a failed job can be retried with it.
    """
    job = caller.current_job_id() if job_id is None else job_id_of(job_id)
    described = _described(resource)
    yield partial(ops.add_resource, job, orjson.dumps(described, option=orjson.OPT_SORT_KEYS).decode(), keep_for_retry)


def _described(resource: Any) -> dict[str, Any]:
    if isinstance(resource, str | Path):
        return {"path": str(Path(resource).absolute())}
    dataset = dataset_of(resource)
    if isinstance(dataset, ParquetFiles | PostgresTable | ClickHouseTable):
        return {"dataset": dataset.description()}
    raise BadInput(f"{type(resource).__name__} cannot be removed; pass a path or a dataset")


def remove(described: dict[str, Any]) -> None:
    """Remove a resource, if it still exists."""
    if "path" in described:
        _remove_path(Path(described["path"]))
        return
    dataset = dataset_of({"$dataset": described["dataset"]})
    match dataset:
        case ParquetFiles():
            for path in dataset.path:
                _remove_path(Path(path))
        case PostgresTable():
            dataset.drop()
        case ClickHouseTable():
            if Path(dataset.path).exists():
                dataset.drop()


def _remove_path(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
