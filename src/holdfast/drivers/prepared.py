"""Statements that a connection executes by name, without a cursor.

For a short statement, a cursor of psycopg takes more time than everything else that a client does. A statement that one
of our connections executes often is therefore prepared once; from then on only its name and its values are sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from types import NoneType
from typing import Any, NamedTuple

import psycopg
from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus

from holdfast.sql.statement import Rows, Statement

# How often a statement is executed before it is prepared, and how many are prepared for one connection. Both are what
# psycopg does for cursors.
USES, MOST = 5, 100

_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")
_INT8, _FLOAT8, _BOOL, _UNKNOWN = 20, 701, 16, 0


class Unsuitable(Exception):
    """A value that a cursor has to adapt or to reject."""


def _text(value: str) -> bytes:
    if "\0" in value:
        raise Unsuitable
    return value.encode()


_ENCODE: dict[type, Callable[[Any], bytes | None]] = {
    str: _text,
    int: lambda value: b"%d" % value,
    bool: lambda value: b"t" if value else b"f",
    float: lambda value: repr(value).encode(),
    NoneType: lambda value: None,
}
_TYPES = {int: _INT8, float: _FLOAT8, bool: _BOOL}


class Prepared(NamedTuple):
    name: bytes
    parameters: tuple[str, ...]


class PreparedStatements:
    """The prepared statements of one connection, by their text."""

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._pgconn = connection.pgconn
        self._transformer = Transformer(connection)
        self._uses: dict[str, int] = {}
        self._known: dict[str, Prepared] = {}
        self._named = 0
        self.wanted: list[Statement[Any]] = []

    def execute(self, statement: Statement[Any]) -> Generator[Any, Any, Rows] | None:
        """Return what the connection has to wait for; None if the statement needs a cursor."""
        known = self._known.get(statement.sql)
        if known is None:
            self._count(statement)
            return None
        params = statement.params
        try:
            values = [_ENCODE[(value := params[name]).__class__](value) for name in known.parameters]
        except (KeyError, Unsuitable):
            return None
        return self._execute(known.name, values)

    def forget(self) -> None:
        """Prepare all statements anew: the server no longer has them. psycopg deallocates all after a rollback."""
        self._known.clear()
        self._uses.clear()
        self.wanted.clear()

    def _count(self, statement: Statement[Any]) -> None:
        uses = self._uses[statement.sql] = self._uses.get(statement.sql, 0) + 1
        if uses == USES and len(self._known) + len(self.wanted) < MOST:
            self.wanted.append(statement)

    def _execute(self, name: bytes, values: list[bytes | None]) -> Generator[Any, Any, Rows]:
        self._pgconn.send_query_prepared(name, values)
        try:
            result = yield from self._result()
        except errors.InvalidSqlStatementName:
            self.forget()
            raise
        if not result.nfields:
            return ()
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def prepare_wanted(self) -> Generator[Any, Any, None]:
        """Prepare statements that were used often. Only while no transaction is open: an error would abort it."""
        while self.wanted:
            statement = self.wanted.pop()
            names: dict[str, int] = {}

            def numbered(found: re.Match[str], names: dict[str, int] = names) -> str:
                return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

            sql = _PLACEHOLDER.sub(numbered, statement.sql)
            types = [_TYPES.get(type(statement.params[name]), _UNKNOWN) for name in names]
            self._named += 1
            name = b"holdfast_%d" % self._named
            self._pgconn.send_prepare(name, sql.encode(), types)
            try:
                yield from self._result()
            except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError):
                continue  # the server cannot tell the types of its parameters: a cursor executes it
            self._known[statement.sql] = Prepared(name, tuple(names))

    def _result(self) -> Generator[Any, Any, Any]:
        [result] = yield from generators.execute(self._pgconn)
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise errors.error_from_result(result, encoding="utf-8")
        return result
