"""Parquet files: split by the row counts in their footers, and read by row groups."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from holdfast.domain.errors import BadInput, ConfigurationError, Problem
from holdfast.jobs.datasets.parts import DatasetChanged, Part, StoredDataset, cut, require_columns

# The directory name that stands for a missing value.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class File(NamedTuple):
    """A file as it was when it was mapped: its parts are invalid once it has changed."""

    path: str
    size: int
    modified: int
    rows: int


@dataclass(frozen=True)
class ParquetFiles(StoredDataset):
    """A file, the `*.parquet` files of a directory, the matches of a pattern, or several of these, ordered by name.

    Subdirectories are included. A subdirectory named `year=2026` adds a column to its rows, as in other tools:
    integers if all values are integers, or else text. Names that start with a dot or an underscore are ignored.

    `columns` defaults to all. A part reads every row group that it overlaps, so parts should be about as large as row
    groups, or larger.
    """

    path: str | Sequence[str]
    columns: tuple[str, ...] = ()
    files: tuple[File, ...] | None = None

    def __post_init__(self) -> None:
        paths = [self.path] if isinstance(self.path, str | Path) else self.path
        object.__setattr__(self, "path", tuple(str(path) for path in paths))
        object.__setattr__(self, "columns", tuple(self.columns))
        if self.files is not None:
            object.__setattr__(self, "files", tuple(File(*file) for file in self.files))

    meaning = "rows of these files, by number; a file that has changed since is rejected"

    def description(self) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": "parquet", "path": list(self.path)}
        if self.columns:
            found["columns"] = list(self.columns)
        if self.files is not None:
            found["files"] = [list(file) for file in self.files]
        return found

    def pinned(self) -> ParquetFiles:
        """Read the footers, and record which files these are."""
        if self.files is not None:
            return self
        found = replace(self, files=tuple(map(_look, self._found())))
        for file in found.files or ():
            names = {*_schema(file.path), *found.partitions.get(file.path, {})}
            require_columns(file.path, self.columns, names)
        return found

    def _found(self) -> list[Path]:
        found: list[Path] = []
        for given in self.path:
            path = Path(given)
            if path.is_dir():
                matches = sorted(one for one in path.rglob("*.parquet") if not _is_hidden(one.relative_to(path)))
            else:
                matches = [path] if path.exists() else sorted(map(Path, glob.glob(given)))  # noqa: PTH207
            if not matches:
                raise BadInput(f"there is no Parquet file at {given}")
            found += matches
        return [path.absolute() for path in found]

    def parts(self, size: int, within: Part | None = None) -> list[Part]:
        return cut(within or Part(0, sum(file.rows for file in self.pinned().files or ())), size)

    def read(self, part: Part) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(part).to_pylist()
        return rows

    def table(self, part: Part) -> Any:
        """Return the rows of a part as a pyarrow table."""
        pa = _pyarrow()
        begin, end, first = part.offset, part.offset + part.limit, 0
        pieces, partitions = [], self.partitions
        for file in self.pinned().files or ():
            if first < end and begin < first + file.rows:
                _require_same(file)
                added = partitions.get(file.path, {})
                pieces.append(_rows(file.path, max(begin - first, 0), min(end - first, file.rows), self.columns, added))
            first += file.rows
        if not pieces:
            raise DatasetChanged(f"these files do not contain rows {begin} to {end}")
        return pa.concat_tables(pieces, promote_options="default")

    @property
    def partitions(self) -> dict[str, dict[str, Any]]:
        """Return the column values in the directories of each file: `year=2026` below a given directory."""
        texts: dict[str, dict[str, str]] = {}
        for file in self.files or ():
            path = Path(file.path)
            for given in map(Path, self.path):
                if path.is_relative_to(given.absolute()) and path != given.absolute():
                    steps = path.relative_to(given.absolute()).parent.parts
                    texts[file.path] = {name: value for name, _, value in (step.partition("=") for step in steps) if _}
        values: dict[str, set[str]] = {}
        for columns in texts.values():
            for name, value in columns.items():
                values.setdefault(name, set()).add(value)
        numbers = {name for name, found in values.items() if all(map(_is_number, found - {NO_VALUE}))}
        return {
            path: {name: _value(text, name in numbers) for name, text in columns.items()}
            for path, columns in texts.items()
        }

    @classmethod
    def write(cls, path: str | Path, rows: Iterable[Mapping[str, Any]] | Any, group: int = 10_000) -> ParquetFiles:
        """Write rows, or a pyarrow table, as one file, completely or not at all. Return it as a dataset."""
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
        raise ConfigurationError("Parquet files need the extra `data`: pip install 'holdfast[data]'") from error
    return pa


def _look(path: Path) -> File:
    pa = _pyarrow()
    import pyarrow.parquet as pq

    status = path.stat()
    try:
        rows = pq.read_metadata(path).num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path} cannot be read as Parquet: {error}", [Problem("/dataset", "not Parquet")]) from None
    return File(str(path), status.st_size, status.st_mtime_ns, rows)


def _schema(path: str | Path) -> list[str]:
    import pyarrow.parquet as pq

    names: list[str] = pq.read_schema(path).names
    return names


def nulls(path: Path, column: str) -> int:
    """Return how many rows of a file have no value in a column."""
    import pyarrow.parquet as pq

    known = _schema(path)
    if not known:
        return 0
    require_columns("a row", [column], known)
    return int(pq.read_table(path, columns=[column]).column(column).null_count)


def _is_hidden(path: Path) -> bool:
    return any(step.startswith((".", "_")) for step in path.parent.parts) or path.name.startswith(".")


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,18}", text) is not None


def _value(text: str, number: bool) -> int | str | None:
    if text == NO_VALUE:
        return None
    return int(text) if number else unquote(text)


def _require_same(file: File) -> None:
    try:
        status = Path(file.path).stat()
    except OSError as error:
        raise DatasetChanged(f"{file.path} can no longer be read: {error.strerror}") from error
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
        raise DatasetChanged(f"{file.path} has changed since it was mapped; map it again")


def _rows(path: str, begin: int, end: int, columns: Sequence[str], added: Mapping[str, Any]) -> Any:
    """Return rows `begin` to `end` of one file, reading only their row groups, with the columns in `added`."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        groups, first, skipped = [], 0, None
        for index in range(file.num_row_groups):
            rows = file.metadata.row_group(index).num_rows
            if first < end and begin < first + rows:
                groups.append(index)
                skipped = first if skipped is None else skipped
            first += rows
        own = set(file.schema_arrow.names)
        table = file.read_row_groups(groups, columns=[name for name in columns if name in own] if columns else None)
    table = table.slice(begin - (skipped or 0), end - begin)
    pa = _pyarrow()
    for name, value in added.items():
        if name not in own and (not columns or name in columns):
            kind = pa.string() if isinstance(value, str) else pa.int64() if isinstance(value, int) else pa.null()
            table = table.append_column(name, pa.array([value] * (end - begin), kind))
    return table.select(list(columns)) if columns else table
