"""Statements that a connection executes by name, without a cursor.

For a short statement, a cursor of psycopg takes more time than everything else that a client does. A statement that one
of our connections executes often is therefore prepared once; from then on only its name and its values are sent.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

import psycopg
from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from holdfast.sql.statement import Rows, Statement

# How often a statement is executed before it is prepared, and how many are prepared for one connection. Both are what
# psycopg does for cursors.
USES, MOST = 5, 100

_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")
# The types of parameters whose type the server should not infer.
_TYPES = {int: 20, float: 701, bool: 16}
_UNKNOWN = 0


class Prepared(NamedTuple):
    """A statement that the server has under a name."""

    name: bytes
    parameters: tuple[str, ...]

    def encoded(self, params: Mapping[str, object]) -> list[bytes | None] | None:
        """Return the values in text form; None if a cursor has to adapt or to reject one of them."""
        values: list[bytes | None] = []
        for name in self.parameters:
            value = params[name]
            if value.__class__ is str:
                if "\0" in value:
                    return None
                values.append(value.encode())
            elif value is None:
                values.append(None)
            elif value is True or value is False:
                values.append(b"t" if value else b"f")
            elif value.__class__ is int:
                values.append(b"%d" % value)
            elif value.__class__ is float:
                values.append(repr(value).encode())
            else:
                return None
        return values


class PreparedStatements:
    """The prepared statements of one connection, by their text."""

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._pgconn = connection.pgconn
        self.transformer = Transformer(connection)
        self._named = 0
        self.known: dict[str, Prepared] = {}
        self.uses: dict[str, int] = {}
        """How often statements were executed that are not prepared."""
        self.wanted: list[Statement[Any]] = []
        """Statements that were executed `USES` times, to be prepared as soon as no transaction is open."""

    def forget(self) -> None:
        """Prepare all statements anew: the server no longer has them. psycopg deallocates all after a rollback."""
        self.known.clear()
        self.uses.clear()
        self.wanted.clear()

    def send(self, name: bytes, values: list[bytes | None]) -> Generator[Any, Any, list[PGresult]]:
        """Execute a statement by name. Return what the connection has to wait for; `rows_of` reads its result."""
        self._pgconn.send_query_prepared(name, values)
        waits: Generator[Any, Any, list[PGresult]] = generators.execute(self._pgconn)
        return waits

    def rows_of(self, results: list[PGresult]) -> Rows:
        """Return the rows of an executed statement, or raise its error."""
        [result] = results
        if result.status == ExecStatus.TUPLES_OK:
            self.transformer.set_pgresult(result)
            return self.transformer.load_rows(0, result.ntuples, tuple)
        if result.status == ExecStatus.COMMAND_OK:
            return ()
        error = errors.error_from_result(result, encoding="utf-8")
        if isinstance(error, errors.InvalidSqlStatementName):
            self.forget()
        raise error

    def prepare_wanted(self) -> Generator[Any, Any, None]:
        """Prepare statements that were used often. Only while no transaction is open: an error would abort it."""
        while self.wanted:
            statement = self.wanted.pop()
            if len(self.known) == MOST:
                continue
            names: dict[str, int] = {}

            def numbered(found: re.Match[str], names: dict[str, int] = names) -> str:
                return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

            sql = _PLACEHOLDER.sub(numbered, statement.sql)
            types = [_TYPES.get(type(statement.params[name]), _UNKNOWN) for name in names]
            self._named += 1
            name = b"holdfast_%d" % self._named
            self._pgconn.send_prepare(name, sql.encode(), types)
            [result] = yield from generators.execute(self._pgconn)
            if result.status == ExecStatus.COMMAND_OK:
                self.known[statement.sql] = Prepared(name, tuple(names))
                continue
            error = errors.error_from_result(result, encoding="utf-8")
            # If the server cannot tell the types of its parameters, a cursor executes the statement.
            if not isinstance(error, psycopg.ProgrammingError | psycopg.DataError | psycopg.NotSupportedError):
                raise error
