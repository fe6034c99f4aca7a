"""ClickHouse tables in a directory, read through `chdb` and split by ranges of their sort key.

Only one process at a time can open such a directory, and a forked process cannot open it at all. So a separate host
process opens it: the first query starts the host, which exits a few seconds after the last query.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.domain.errors import BadInput
from holdfast.jobs.datasets import hosting
from holdfast.jobs.datasets.parts import DatasetChanged, Part, StoredDataset, key_ranges, require_columns, require_keys


@dataclass(frozen=True)
class ClickHouseTable(StoredDataset):
    """A MergeTree table under a directory; `order_by` is the column or columns by which it is sorted and split."""

    path: str
    table: str
    order_by: str | tuple[str, ...]
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = (self.order_by,) if isinstance(self.order_by, str) else tuple(self.order_by)
        if not names:
            raise BadInput("a ClickHouse table is split by its sort key; name its columns in order_by")
        object.__setattr__(self, "path", str(Path(self.path).absolute()))
        object.__setattr__(self, "order_by", names)
        object.__setattr__(self, "columns", tuple(self.columns))

    @property
    def meaning(self) -> str:
        return (
            f"the rows of {self.table} whose {', '.join(self.order_by)} is between two values: rows added later inside "
            "that range are read too, and rows above the highest key at the time of the map are not"
        )

    def description(self) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": "clickhouse", "path": self.path, "table": self.table}
        found["order_by"] = list(self.order_by)
        return found | ({"columns": list(self.columns)} if self.columns else {})

    def count(self) -> int:
        """Return the current number of rows."""
        return int(self._query(f"select count() as n from {self._table}")[0]["n"])  # noqa: S608 - quoted

    def parts(self, size: int, within: Part | None = None) -> list[Part]:
        """Split the table with one query on the sort key; every row belongs to exactly one part."""
        if within is None:
            self._require_readable()
        found = self._query(
            f"""
            select toString(min(key)) as low, toString(max(key)) as high, toTypeName(any(key)) as type, count() as n
            from (select {self._key} as key, intDiv(rank() over (order by {self._key}) - 1, {int(size)}) as number
                  from {self._table} where {self._within(within)})
            group by number order by number
            """  # noqa: S608 - every name and value in it is quoted
        )
        if not found:
            return []
        firsts = [(row["low"], row["n"]) for row in found]
        return key_ranges(firsts, found[-1]["high"], within, type=found[0]["type"])

    def _require_readable(self) -> None:
        """Raise BadInput if the table or a column is missing, or if a row without a key would be in no part."""
        try:
            known = {row["name"] for row in self._query(f"describe table {self._table}")}
        except DatasetChanged:
            raise BadInput(f"there is no table {self.table} in {self.path}") from None
        require_columns(self.table, [*self.order_by, *self.columns], known)
        without = " or ".join(f"isNull({_quoted(name)})" for name in self.order_by)
        # The alias must not hide a column of the same name.
        (found,) = self._query(f"select count() as `rows without` from {self._table} where {without}")  # noqa: S608 - quoted
        require_keys(self.table, ", ".join(self.order_by), found["rows without"])

    def read(self, part: Part) -> list[dict[str, Any]]:
        columns = ", ".join(map(_quoted, self.columns)) or "*"
        return self._query(
            f"select {columns} from {self._table} where {self._within(part)} order by {self._key}"  # noqa: S608
        )

    @property
    def _table(self) -> str:
        return ".".join(map(_quoted, self.table.split(".")))

    @property
    def _key(self) -> str:
        names = ", ".join(map(_quoted, self.order_by))
        return names if len(self.order_by) == 1 else f"({names})"

    def _within(self, part: Part | None) -> str:
        if part is None:
            return "1"
        place = part.place
        word, value = ("<", place["before"]) if "before" in place else ("<=", place["upto"])

        def written(text: str) -> str:
            return f"cast({_text(text)}, {_text(place['type'])})"

        return f"{self._key} >= {written(place['from'])} and {self._key} {word} {written(value)}"

    def _query(self, query: str) -> list[dict[str, Any]]:
        try:
            return hosting.query(self.path, query)
        except hosting.Refused as error:
            if "UNKNOWN_TABLE" in str(error):
                raise DatasetChanged(f"table {self.table} is no longer in {self.path}") from error
            raise

    def drop(self) -> None:
        """Drop the table if it exists."""
        hosting.query(self.path, f"drop table if exists {self._table} sync")

    @classmethod
    def write(
        cls, path: str | Path, table: str, rows: Iterable[Mapping[str, Any]] | Any, order_by: str | tuple[str, ...]
    ) -> ClickHouseTable:
        """Create a table from rows or from a pyarrow table, replacing an existing one. Return it as a dataset.

        Each row must have a key, the columns of `order_by`: a row without one would be in no part.
        """
        from holdfast.jobs.datasets.parquet import ParquetFiles, nulls

        made = cls(str(path), table, order_by)
        Path(made.path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "rows.parquet"
            ParquetFiles.write(file, rows)
            for name in made.order_by:
                require_keys(None, name, nulls(file, name))
            rows_of_file = f"select * from file({_text(str(file))}, Parquet)"  # noqa: S608 - quoted
            order = f"engine = MergeTree order by {made._key} settings allow_nullable_key = 1"
            hosting.query(made.path, f"create or replace table {made._table} {order} as {rows_of_file}")
        return made


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
