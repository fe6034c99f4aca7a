"""Statements that a connection executes by name, without a cursor: the same rows and errors, with less work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from holdfast.drivers import psycopg as driver
from holdfast.drivers import psycopg_async, sessions
from holdfast.drivers.prepared import USES
from holdfast.drivers.psycopg import OwnConnection
from holdfast.drivers.psycopg_async import AsyncOwnConnection
from holdfast.sql.statement import Statement, rows

VALUES = [
    {"text": "plain", "number": 1, "flag": True, "share": 0.5},
    {"text": None, "number": None, "flag": None, "share": None},
    {"text": 'it\'s \\ "odd" ü 🚀', "number": -(2**40), "flag": False, "share": float("inf")},
    {"text": "", "number": 2**62, "flag": True, "share": -1e-300},
]
ECHO = "select %(text)s::text, %(number)s::bigint, %(flag)s::boolean, %(share)s::float8, '100 %%', %(text)s::text"


@pytest.fixture
def connection(database_url: str) -> Iterator[OwnConnection]:
    with OwnConnection.connect(database_url, session=sessions.CLIENT) as opened:
        yield opened


def ask(connection: OwnConnection, sql: Any, **params: object) -> Any:
    return driver.transact(connection, lambda: iter(Statement(sql, params, rows)))


def prepared(connection: OwnConnection) -> list[str]:
    found = connection.execute(
        "select statement from pg_prepared_statements where name like 'holdfast%'", prepare=False
    )
    return [row[0] for row in found]


def test_a_statement_that_is_executed_often_is_prepared_and_answers_as_before(connection: OwnConnection) -> None:
    for _ in range(USES):
        answers = [ask(connection, ECHO, **values) for values in VALUES]
        assert answers == [[(*values.values(), "100 %", values["text"])] for values in VALUES]
    assert len(prepared(connection)) == 1


async def test_an_asynchronous_connection_does_the_same(database_url: str) -> None:
    async with await AsyncOwnConnection.connect(database_url, session=sessions.CLIENT) as connection:
        for values in VALUES * USES:
            statement = Statement(ECHO, values, rows)
            answer = await psycopg_async.transact(connection, lambda one=statement: iter(one))  # type: ignore[misc]
            assert answer == [(*values.values(), "100 %", values["text"])]
        found = await connection.execute("select count(*) from pg_prepared_statements where name like 'holdfast%'")
        assert await found.fetchone() == (1,)


def test_a_value_that_text_cannot_hold_is_rejected_as_before(connection: OwnConnection) -> None:
    for _ in range(USES + 1):
        ask(connection, "select %(text)s::text", text="fine")
    with pytest.raises(psycopg.DataError, match="NUL"):
        ask(connection, "select %(text)s::text", text="a\0b")
    assert ask(connection, "select %(text)s::text", text="fine") == [("fine",)]


def test_a_value_of_another_type_is_left_to_a_cursor(connection: OwnConnection) -> None:
    for _ in range(USES + 1):
        ask(connection, "select %(value)s::bytea", value=None)
    assert ask(connection, "select %(value)s::bytea", value=b"\x00\xff") == [(b"\x00\xff",)]


def test_a_statement_that_cannot_be_prepared_is_still_executed(connection: OwnConnection) -> None:
    """`left` has no form for bigint, and a small number of a cursor is a smallint."""
    for _ in range(USES * 2):
        assert ask(connection, "select left('abc', %(number)s)", number=2) == [("ab",)]
    assert prepared(connection) == []


def test_errors_are_those_of_a_cursor_and_leave_the_connection_usable(connection: OwnConnection) -> None:
    ask(connection, "create temporary table one (id bigint primary key)")
    sql = "insert into one values (%(id)s)"
    for number in range(USES + 1):
        assert ask(connection, sql, id=number) == ()
    with pytest.raises(psycopg.errors.UniqueViolation, match="one_pkey") as caught:
        ask(connection, sql, id=1)
    assert caught.value.diag.constraint_name == "one_pkey"
    assert ask(connection, sql, id=USES + 2) == ()


def test_statements_that_the_server_no_longer_has_are_prepared_again(connection: OwnConnection) -> None:
    """psycopg deallocates everything after a rollback, and so may anyone who executes `discard all`."""

    def several() -> Any:
        yield Statement("select 1", {}, rows, together=True)
        found = yield Statement("select %(number)s::bigint", {"number": 1}, rows)
        return found

    for _ in range(USES * 2):
        ask(connection, "select %(number)s::bigint", number=1)
        connection.execute("select 2")
    with suppress(ZeroDivisionError), driver.transaction(connection):
        connection.execute("select 3")
        raise ZeroDivisionError
    connection.execute("select 4")
    assert driver.transact(connection, several) == [(1,)]
    for _ in range(USES * 2):
        assert ask(connection, "select %(number)s::bigint", number=1) == [(1,)]
    connection.execute("discard all")
    assert ask(connection, "select %(number)s::bigint", number=1) == [(1,)]


def test_statements_that_become_frequent_together_get_different_names(connection: OwnConnection) -> None:
    def several() -> Any:
        one = yield Statement("select %(number)s::bigint + 1", {"number": 1}, rows, together=True)
        two = yield Statement("select %(number)s::bigint + 2", {"number": 1}, rows)
        return one, two

    for _ in range(USES * 2):
        assert driver.transact(connection, several) == ([(2,)], [(3,)])
    assert len(prepared(connection)) == 2


def test_statements_are_prepared_only_while_no_transaction_is_open(connection: OwnConnection) -> None:
    """A statement that cannot be prepared would abort the transaction."""

    def several() -> Any:
        for _ in range(USES * 2):
            yield Statement("select left('abc', %(number)s)", {"number": 2}, rows, together=True)
        return "committed"

    assert driver.transact(connection, several) == "committed"
    assert driver.transact(connection, several) == "committed"


def test_a_connection_that_prepares_nothing_uses_cursors(database_url: str) -> None:
    with OwnConnection.connect(database_url, session=sessions.CLIENT, pooler="on") as connection:
        assert connection.prepared is None
    with OwnConnection.connect(database_url, session=sessions.CLIENT, prepare_threshold=None) as connection:
        assert connection.prepared is None
