"""Postgres tables, split by ranges of a key, so that a part does not depend on rows that are added elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from holdfast.domain.errors import BadInput, DatabaseUnreachable
from holdfast.jobs.datasets.parts import DatasetChanged, Part, StoredDataset, key_ranges, require_columns, require_keys


@dataclass(frozen=True)
class PostgresTable(StoredDataset):
    """A table, or a view that has a key, by which it is sorted and split.

    `url` may contain environment variables (`$WAREHOUSE_URL`), which are expanded where the table is opened, so that a
    password is neither stored nor sent. `table` may include a schema. `columns` defaults to all.
    """

    url: str
    table: str
    key: str = "id"
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))

    @property
    def meaning(self) -> str:
        return (
            f"the rows of {self.table} whose {self.key} is between two values: rows that are changed, added or "
            "deleted later inside that range are read as they are then; keys above the highest one at that time are not"
        )

    def description(self) -> dict[str, Any]:
        found = {"kind": "postgres", "url": self.url, "table": self.table, "key": self.key}
        return found | ({"columns": list(self.columns)} if self.columns else {})

    def parts(self, size: int, within: Part | None = None) -> list[Part]:
        """Split the table by its key, in one snapshot; each key belongs to exactly one part, including later keys."""
        query = sql.SQL(
            """
            select key::text, count(*) from (
                select first_value({key}) over (partition by number order by {key}) as key, number
                from (select {key}, (rank() over (order by {key}) - 1) / {size} as number
                      from {table} where {range}) as ranked) as cut
            group by number, key order by number
            """
        ).format(key=self._key, size=sql.Literal(size), table=self._table, range=self._within(within))
        last = sql.SQL("select cast({key} as text) as last from {table} where {range} order by {key} desc limit 1")
        last_query = last.format(key=self._key, table=self._table, range=self._within(within))
        with self._connect() as connection:
            connection.execute("set transaction isolation level repeatable read, read only")
            if within is None:
                self._require_readable(connection)
            found = connection.execute(query).fetchall()
            highest = connection.execute(last_query).fetchone()
        if not found or highest is None:
            return []
        return key_ranges(found, highest[0], within)

    def _require_readable(self, connection: psycopg.Connection[Any]) -> None:
        """Raise BadInput if the table or a column is missing, or if a row without a key would be in no part."""
        try:
            cursor = connection.execute(sql.SQL("select * from {} limit 0").format(self._table))
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            server = connection.info
            raise BadInput(f"there is no table {self.table} at {server.host}:{server.port}/{server.dbname}") from None
        require_columns(self.table, [self.key, *self.columns], {one.name for one in cursor.description or ()})
        query = sql.SQL("select count(*) from {} where {} is null").format(self._table, self._key)
        (without,) = connection.execute(query).fetchone() or (0,)
        require_keys(self.table, self.key, without)

    def read(self, part: Part) -> list[dict[str, Any]]:
        columns = sql.SQL(", ").join(map(sql.Identifier, self.columns)) if self.columns else sql.SQL("*")
        query = sql.SQL("select {columns} from {table} where {range} order by {key}").format(
            columns=columns, table=self._table, range=self._within(part), key=self._key
        )
        try:
            with self._connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
                return cursor.execute(query).fetchall()
        except psycopg.errors.UndefinedTable as error:
            raise DatasetChanged(f"table {self.table} no longer exists") from error

    @property
    def _key(self) -> sql.Identifier:
        return sql.Identifier(self.key)

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))

    def _within(self, part: Part | None) -> sql.Composable:
        if part is None:
            return sql.SQL("true")
        place = part.place
        # A literal of unknown type takes the type of the key.
        low = sql.SQL("{key} >= {value}").format(key=self._key, value=_literal(place["from"]))
        word, value = ("<", place["before"]) if "before" in place else ("<=", place["upto"])
        high = sql.SQL("{key} {word} {value}").format(key=self._key, word=sql.SQL(word), value=_literal(value))
        return sql.SQL(" and ").join([low, high])

    def _connect(self) -> psycopg.Connection[Any]:
        url = os.path.expandvars(self.url)
        if "$" in url:
            raise BadInput(f"the URL of table {self.table} names a variable that is not set here: {self.url}")
        try:
            return psycopg.connect(url, connect_timeout=10, application_name="holdfast view")
        except psycopg.OperationalError as error:
            cause = str(error).strip().partition("\n")[0]
            raise DatabaseUnreachable(f"the database of table {self.table} cannot be reached: {cause}") from None

    def drop(self) -> None:
        """Drop the table if it exists."""
        with self._connect() as connection:
            connection.execute(sql.SQL("drop table if exists {}").format(self._table))

    @classmethod
    def write(cls, url: str, table: str, rows: Iterable[Mapping[str, Any]], key: str = "id") -> PostgresTable:
        """Replace the rows of an existing table, all or none. Return it as a dataset."""
        target = sql.Identifier(*table.split("."))
        rows = list(rows)
        names: Sequence[str] = list(rows[0]) if rows else []
        made = cls(url, table, key)
        with made._connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql.SQL("delete from {}").format(target))
            if rows:
                columns = sql.SQL(", ").join(map(sql.Identifier, names))
                with cursor.copy(sql.SQL("copy {} ({}) from stdin").format(target, columns)) as copy:
                    for row in rows:
                        copy.write_row([row[name] for name in names])
        return made


def _literal(text: str) -> sql.Composable:
    """Return a quoted literal without a type."""
    return sql.SQL("'" + text.replace("'", "''") + "'")
