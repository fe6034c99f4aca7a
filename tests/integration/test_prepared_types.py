"""Values of another type than those with which a statement was prepared, and tables that a migration changes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import psycopg
import pytest

from holdfast.drivers import psycopg as driver
from holdfast.drivers import sessions
from holdfast.drivers.prepared import USES
from holdfast.drivers.psycopg import OwnConnection
from holdfast.sql.statement import Statement, rows


class Colour(StrEnum):
    RED = "red"


class Whole(int):
    """A number that is not an int itself."""


@pytest.fixture
def connection(database_url: str) -> Iterator[OwnConnection]:
    with OwnConnection.connect(database_url, session=sessions.CLIENT) as opened:
        yield opened


def ask(connection: OwnConnection, sql: Any, **params: object) -> Any:
    return driver.transact(connection, lambda: iter(Statement(sql, params, rows)))


def prepared(connection: OwnConnection) -> int:
    found = connection.execute(
        "select count(*) from pg_prepared_statements where name like 'holdfast%'", prepare=False
    ).fetchall()
    return int(found[0][0])


def outcome(connection: OwnConnection, execute: Any) -> Any:
    """The rows of a statement, or its error."""
    try:
        return execute()
    except (psycopg.Error, UnicodeEncodeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    ("sql", "first", "later"),
    [
        ("select extract(epoch from %(value)s * interval '1 second')::text", 1, [0.5, None, True, 10**30, Whole(3)]),
        ("select %(value)s::boolean", True, [1, 0, 2, None]),
        ("select %(value)s::bigint", 1, [True, 1.6, None, 2**63, -(2**63), 10**30, Whole(2)]),
        ("select %(value)s::integer", None, [7, 1.6, True, "5"]),
        ("select %(value)s::text", None, [7, 1.5, True, "text", float("nan"), float("-inf"), Colour.RED, "\ud800"]),
        ("select %(value)s::text", "text", [7, 1.5, True, None, Colour.RED]),
        ("select %(value)s::float8", 0.5, [1, True, None, 10**30, float("inf")]),
    ],
)
def test_any_value_is_answered_like_by_a_cursor(
    connection: OwnConnection, sql: str, first: object, later: list[object]
) -> None:
    for _ in range(USES + 1):
        ask(connection, sql, value=first)
    assert prepared(connection) == 1
    for value in later:
        by_name = outcome(connection, lambda value=value: ask(connection, sql, value=value))
        statement: Statement[Any] = Statement(sql, {"value": value}, rows)
        by_cursor = outcome(connection, lambda statement=statement: driver.fetch(connection, statement))
        assert by_name == by_cursor, value


@pytest.mark.parametrize(
    "column",
    [
        "true",
        "1::smallint",
        "-1::bigint",
        "1.5::float8",
        "'nan'::float8",
        "'\u00e9'::text",
        "'\\x00ff'::bytea",
        "null::bytea",
        "1.50::numeric",
        "interval '1 month 2 days'",
        "timestamptz '2026-03-29 02:30:00.000001+02'",
        "'01a1ecf7-c7d1-7da6-9e56-a938f29571eb'::uuid",
        "'{\"a\": [1, null]}'::json",
        "'{\"a\": 1.0}'::jsonb",
        "array['a', null]",
        "'holdfast.runs'::regclass",
        "'public'::name",
        "pg_notify('nobody', '')",
        "(1, 'a')",
    ],
)
def test_column_of_any_type_is_read_like_by_a_cursor(connection: OwnConnection, column: str) -> None:
    sql = f"select {column}, %(value)s::bigint, null::text"
    for _ in range(USES + 1):
        ask(connection, sql, value=1)
    assert prepared(connection) == 1
    statement: Statement[Any] = Statement(sql, {"value": 1}, rows)  # type: ignore[arg-type]
    (by_name,), (by_cursor,) = ask(connection, sql, value=1), driver.fetch(connection, statement)
    assert (repr(by_name), [*map(type, by_name)]) == (repr(by_cursor), [*map(type, by_cursor)])


def test_statement_is_prepared_again_after_a_migration_has_changed_the_type_of_its_result(
    connection: OwnConnection, database_url: str
) -> None:
    sql = "select number from public.counted where number >= %(least)s"
    with psycopg.connect(database_url, autocommit=True) as migration:
        migration.execute("create table public.counted (number integer)")
        migration.execute("insert into public.counted values (1)")
        for _ in range(USES + 1):
            ask(connection, sql, least=0)
        assert prepared(connection) == 1
        migration.execute("alter table public.counted alter number type bigint")
        for _ in range(USES * 2):
            assert ask(connection, sql, least=0) == [(1,)]
        assert prepared(connection) == 2  # the outdated one, and the new one


def test_no_more_statements_are_prepared_than_a_connection_may_have(
    connection: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.drivers.prepared.MOST", 2)
    for _ in range(USES + 2):
        answers = [ask(connection, f"select %(value)s::bigint + {number}", value=1) for number in range(4)]
        assert answers == [[(1 + number,)] for number in range(4)]
    assert prepared(connection) == 2
