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


def _integer(value: int) -> bytes:
    if not -(2**63) <= value < 2**63:
        raise Unsuitable
    return b"%d" % value


Encoders = dict[type, Callable[[Any], bytes | None]]

# How values are encoded, by the type of the value with which the statement was prepared. A value of another type might
# be invalid for the type of the parameter, or mean something else there, so a cursor executes the statement then.
_NULL: Encoders = {NoneType: lambda value: None}
_ANY_TEXT: Encoders = {str: _text, **_NULL}
_ENCODERS: dict[type, Encoders] = {
    int: {int: _integer, **_NULL},
    bool: {bool: lambda value: b"t" if value else b"f", **_NULL},
    float: {float: lambda value: repr(value).encode(), **_NULL},
}
_TYPES = {int: _INT8, float: _FLOAT8, bool: _BOOL}


class Prepared(NamedTuple):
    name: bytes
    parameters: tuple[tuple[str, Encoders], ...]


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
            values = [encoders[(value := params[name]).__class__](value) for name, encoders in known.parameters]
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
        except (errors.InvalidSqlStatementName, errors.FeatureNotSupported):
            # The server no longer has it, or a migration has changed the type of a column that it returns.
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
            kinds = [type(statement.params[one]) for one in names]
            types = [_TYPES.get(kind, _UNKNOWN) for kind in kinds]
            self._named += 1
            name = b"holdfast_%d" % self._named
            self._pgconn.send_prepare(name, sql.encode(), types)
            try:
                yield from self._result()
            except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError):
                continue  # the server cannot tell the types of its parameters: a cursor executes it
            encoders = [_ENCODERS.get(kind, _ANY_TEXT) for kind in kinds]
            self._known[statement.sql] = Prepared(name, tuple(zip(names, encoders, strict=True)))

    def _result(self) -> Generator[Any, Any, Any]:
        [result] = yield from generators.execute(self._pgconn)
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise errors.error_from_result(result, encoding="utf-8")
        return result
