"""Statements that a connection executes by name, without a cursor.

For a short statement, a cursor of psycopg takes more time than everything else that a client does. A statement that one
of our connections executes often is therefore prepared once; from then on only its name and its values are sent.
"""

from __future__ import annotations

import re
import select
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from holdfast.sql.statement import Rows, Statement

# How often a statement is executed before it is prepared, and how many are prepared for one connection. Both are what
# psycopg does for cursors.
USES, MOST = 5, 100
# How many milliseconds to wait for a response before looking how long that has taken.
POLL_EVERY = 100
# How many seconds an interrupted program waits until the server has received that a statement is cancelled.
CANCEL_WITHIN = 5.0

_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")
# The types of parameters whose type the server should not infer.
_TYPES = {int: 20, float: 701, bool: 16}
_UNKNOWN = 0
# Types of columns that are read in binary form, which takes less time on both sides and gives the same values: bool,
# bytea, bigint, smallint, integer, text and double precision.
_READ_AS_BINARY = {16, 17, 20, 21, 23, 25, 701}


class Prepared(NamedTuple):
    """A statement that is prepared on the server under a name, with the type of value that each parameter takes.

    `form` is the form in which the server sends the rows: text or binary.
    """

    name: bytes
    parameters: tuple[tuple[str, type], ...]
    form: Format

    def encoded(self, params: Mapping[str, Any]) -> list[bytes | None] | None:
        """Return the values in text form; None if a cursor has to adapt or to reject one of them.

        A value of another type might be invalid for the type of the parameter, or mean something else there.
        """
        values: list[bytes | None] = []
        for name, kind in self.parameters:
            value = params[name]
            given = value.__class__
            if value is None:
                values.append(None)
            elif given is not kind:
                return None
            elif kind is str:
                if "\0" in value:
                    return None
                values.append(value.encode())
            elif kind is bool:
                values.append(b"t" if value else b"f")
            elif kind is float or -(2**63) <= value < 2**63:
                values.append(repr(value).encode())
            else:
                return None
        return values


def make_input_poll(pgconn: PGconn) -> select.poll:
    """Return a poll object that waits for input on a connection."""
    input_poll = select.poll()
    input_poll.register(pgconn.socket, select.POLLIN)
    return input_poll


class PreparedStatements:
    """The prepared statements of one connection, by their text."""

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._pgconn = connection.pgconn
        self.transformer = Transformer(connection)
        self.input_poll = make_input_poll(self._pgconn)
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

    def send(self, statement: Prepared, values: list[bytes | None]) -> Generator[Any, Any, list[PGresult]]:
        """Execute a statement by name. Return what the connection has to wait for; `rows_of` reads its result."""
        self._pgconn.send_query_prepared(statement.name, values, result_format=statement.form)
        waits: Generator[Any, Any, list[PGresult]] = generators.execute(self._pgconn)
        return waits

    def exchange(
        self,
        connection: psycopg.Connection[Any],
        statement: Prepared,
        values: list[bytes | None],
        readable: Callable[[], object],
    ) -> list[PGresult]:
        """Execute a statement by name on its connection, without psycopg's generators, which take 15 µs longer.

        `readable` waits a while until the connection can be read. If that is interrupted, the connection is closed.
        """
        pgconn = self._pgconn
        pgconn.send_query_prepared(statement.name, values, result_format=statement.form)
        if pgconn.flush():  # more than the socket takes at once
            return connection.wait(generators.execute(pgconn))
        results: list[PGresult] = []
        try:
            while True:
                while pgconn.is_busy():
                    readable()
                    # Even if the socket has nothing to read: the TLS library may have decrypted more than libpq read.
                    pgconn.consume_input()
                result = pgconn.get_result()
                if result is None:
                    break
                results.append(result)
        except BaseException as error:
            if (
                results
                and results[-1].status == ExecStatus.FATAL_ERROR
                and isinstance(error, psycopg.OperationalError)
                and connection.closed
            ):
                return results  # the server gave the reason before it closed the connection
            with closing(connection), suppress(psycopg.Error):
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    # As psycopg does. Otherwise, the server would go on with the statement.
                    connection.cancel_safe(timeout=CANCEL_WITHIN)
            raise
        while notification := pgconn.notifies():
            if pgconn.notify_handler:
                pgconn.notify_handler(notification)
        return results

    def rows_of(self, results: list[PGresult]) -> Rows:
        """Return the rows of an executed statement, or raise its error."""
        result = results[-1]  # if the commit failed, its error follows the rows
        if result.status == ExecStatus.TUPLES_OK:
            self.transformer.set_pgresult(result)
            return self.transformer.load_rows(0, result.ntuples, tuple)
        if result.status == ExecStatus.COMMAND_OK:
            return ()
        error = errors.error_from_result(result, encoding="utf-8")
        if isinstance(error, errors.InvalidSqlStatementName | errors.FeatureNotSupported):
            # The server no longer has it, or a migration has changed the type of a column that it returns.
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
            kinds = [type(statement.params[one]) for one in names]
            types = [_TYPES.get(kind, _UNKNOWN) for kind in kinds]
            self._named += 1
            name = b"holdfast_%d" % self._named
            self._pgconn.send_prepare(name, sql.encode(), types)
            [result] = yield from generators.execute(self._pgconn)
            if result.status == ExecStatus.COMMAND_OK:
                self._pgconn.send_describe_prepared(name)
                [result] = yield from generators.execute(self._pgconn)
            if result.status == ExecStatus.COMMAND_OK:
                taken = [kind if kind in _TYPES else str for kind in kinds]
                columns = {result.ftype(column) for column in range(result.nfields)}
                form = Format.BINARY if columns <= _READ_AS_BINARY else Format.TEXT
                self.known[statement.sql] = Prepared(name, tuple(zip(names, taken, strict=True)), form)
                continue
            error = errors.error_from_result(result, encoding="utf-8")
            # If the server cannot tell the types of its parameters, a cursor executes the statement.
            if not isinstance(error, psycopg.ProgrammingError | psycopg.DataError | psycopg.NotSupportedError):
                raise error
