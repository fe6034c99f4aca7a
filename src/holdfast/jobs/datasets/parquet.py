"""Parquet files: cut by rows from their footers, read by row groups."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.domain.errors import BadInput, ConfigurationError
from holdfast.jobs.datasets.parts import DatasetChanged, Part, cut


class File(NamedTuple):
    """A file as it was: a part of it means nothing once it has changed."""

    path: str
    size: int
    modified: int
    rows: int


@dataclass(frozen=True)
class ParquetFiles:
    """A file, the `*.parquet` files of a directory, what a pattern matches, or several of these, in order of names.

    `columns` are all unless told. A part reads the row groups that it touches, so parts about as large as these, or
    larger, waste nothing.
    """

    path: str | Sequence[str]
    columns: tuple[str, ...] = ()
    files: tuple[File, ...] | None = None

    def __post_init__(self) -> None:
        paths = [self.path] if isinstance(self.path, str | Path) else self.path
        object.__setattr__(self, "path", tuple(str(path) for path in paths))
        object.__setattr__(self, "columns", tuple(self.columns))

    meaning = "rows of these files, by number; a file that has changed since is refused"

    def description(self) -> dict[str, Any]:
        told: dict[str, Any] = {"kind": "parquet", "path": list(self.path)}
        if self.columns:
            told["columns"] = list(self.columns)
        if self.files is not None:
            told["files"] = [list(file) for file in self.files]
        return told

    def reference(self) -> dict[str, Any]:
        return {"$dataset": self.description()}

    def inline(self, part: Part) -> None:
        return None

    def pinned(self) -> ParquetFiles:
        """Read the footers, and remember which files these were."""
        if self.files is not None:
            return self
        return replace(self, files=tuple(map(_look, self._found())))

    def _found(self) -> list[Path]:
        found: list[Path] = []
        for given in self.path:
            path = Path(given)
            if path.is_dir():
                matches = sorted(path.glob("*.parquet"))
            else:
                matches = [path] if path.exists() else sorted(map(Path, glob.glob(given)))  # noqa: PTH207
            if not matches:
                raise BadInput(f"no Parquet file is at {given}")
            found += matches
        return [path.absolute() for path in found]

    def parts(self, size: int, within: Part | None = None) -> list[Part]:
        return cut(within or Part(0, sum(file.rows for file in self.pinned().files or ())), size)

    def read(self, part: Part) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(part).to_pylist()
        return rows

    def table(self, part: Part) -> Any:
        """The rows of a part as a table of pyarrow."""
        pa = _pyarrow()
        begin, end, first = part.offset, part.offset + part.limit, 0
        pieces = []
        for file in self.pinned().files or ():
            if first < end and begin < first + file.rows:
                _require_same(file)
                pieces.append(_rows(file.path, max(begin - first, 0), min(end - first, file.rows), self.columns))
            first += file.rows
        if not pieces:
            raise DatasetChanged(f"these files have no rows {begin} to {end}")
        return pa.concat_tables(pieces)

    @classmethod
    def write(cls, path: str | Path, rows: Iterable[Mapping[str, Any]] | Any, group: int = 10_000) -> ParquetFiles:
        """Write rows, or a table of pyarrow, as one file: whole or not at all. Returns it as a dataset."""
        pa = _pyarrow()
        import pyarrow.parquet as pq

        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows])
        final = Path(path)
        aside = final.with_name(f".{final.name}.writing")
        pq.write_table(table, aside, row_group_size=group)
        aside.replace(final)
        return cls(str(final.absolute()))


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ConfigurationError("Parquet files need the extra: pip install 'holdfast[data]'") from error
    return pa


def _look(path: Path) -> File:
    _pyarrow()
    import pyarrow.parquet as pq

    status = path.stat()
    return File(str(path), status.st_size, status.st_mtime_ns, pq.read_metadata(path).num_rows)


def _require_same(file: File) -> None:
    try:
        status = Path(file.path).stat()
    except OSError as error:
        raise DatasetChanged(f"{file.path} is gone: {error.strerror}") from error
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
        raise DatasetChanged(f"{file.path} has changed since it was mapped; map it again")


def _rows(path: str, begin: int, end: int, columns: Sequence[str]) -> Any:
    """Rows from `begin` to `end` of one file, reading only the row groups they are in."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        groups, first, skipped = [], 0, None
        for index in range(file.num_row_groups):
            rows = file.metadata.row_group(index).num_rows
            if first < end and begin < first + rows:
                groups.append(index)
                skipped = first if skipped is None else skipped
            first += rows
        table = file.read_row_groups(groups, columns=list(columns) or None)
    return table.slice(begin - (skipped or 0), end - begin)
