"""The databases of tests: no test sees data of an earlier one."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.databases import Databases

MANY_ROWS = """
insert into holdfast.queues (name, created_at)
select repeat('x', 1000) || number, now() from generate_series(1, 3000) as number
"""
# Changes that deleting rows would leave behind for the next test, or that would take long to delete.
CHANGES = [
    "create table effects (id integer)",
    "create table holdfast.effects (id integer)",
    "create schema other",
    "create index on holdfast.ready (queue)",
    "create sequence effects",
    "create type kind as enum ('a')",
    "drop trigger ready_guard on holdfast.ready",
    "drop view holdfast.run_status",
    "alter table holdfast.ready disable trigger ready_guard",
    "alter table holdfast.ready alter queue set default 'other'",
    "alter table holdfast.ready alter task drop not null",
    "alter table holdfast.ready set (fillfactor = 50)",
    "create or replace function holdfast.now() returns timestamptz language sql return '2000-01-01'::timestamptz",
    "grant select on holdfast.ready to public",
    "update holdfast.migration set sha256 = null",
    "alter database {} set jit = on",
    "alter database {} connection limit 3",
    "revoke connect on database {} from public",
    "analyze holdfast.migration",
    "select lo_create(0)",
    MANY_ROWS,
]
ROWS = """
insert into holdfast.queues (name, created_at) values ('default', now());
select nextval('holdfast.outbox_id_seq')
"""


@pytest.fixture
def databases(server_connection: psycopg.Connection, server_url: str, template_database: str) -> Iterator[Databases]:
    prefix = f"{template_database}_lent_{server_connection.info.backend_pid}"
    databases = Databases(server_connection, server_url, template_database, prefix)
    yield databases
    databases.close()


def name_of(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


def number_of(connection: psycopg.Connection, name: str) -> object:
    """The OID of a database, which stays the same when it is renamed."""
    return connection.execute("select oid from pg_database where datname = %s", [name]).fetchone()


def test_database_with_rows_is_emptied_and_lent_under_another_name(databases: Databases) -> None:
    with databases.lend() as first, psycopg.connect(first, autocommit=True) as connection:
        number = number_of(connection, name_of(first))
        connection.execute(ROWS)
    with databases.lend() as second, psycopg.connect(second, autocommit=True) as connection:
        assert name_of(second) != name_of(first)
        assert number_of(connection, name_of(second)) == number
        assert connection.execute("select from holdfast.queues").fetchall() == []
        assert connection.execute("select nextval('holdfast.outbox_id_seq')").fetchone() == (1,)
        assert connection.execute("select from holdfast.migration").fetchall() != []
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(first)


@pytest.mark.parametrize("change", CHANGES)
def test_database_that_was_changed_is_dropped(databases: Databases, change: str) -> None:
    with databases.lend() as first, psycopg.connect(first, autocommit=True) as connection:
        number = number_of(connection, name_of(first))
        connection.execute(sql.SQL(change).format(sql.Identifier(name_of(first))))
    with databases.lend() as second, psycopg.connect(second, autocommit=True) as connection:
        assert number_of(connection, name_of(second)) != number


def test_session_left_open_is_ended(databases: Databases) -> None:
    with databases.lend() as first:
        left = psycopg.connect(first)
        left.execute("insert into holdfast.queues (name, created_at) values ('left', now())")
    with pytest.raises(psycopg.OperationalError):
        left.execute("select 1")
    left.close()
    with databases.lend() as second, psycopg.connect(second) as connection:
        assert connection.execute("select from holdfast.queues").fetchall() == []


def test_fresh_database_was_never_lent_and_is_not_lent_again(databases: Databases) -> None:
    numbers = []
    for fresh in (False, True, False):
        with databases.lend(fresh=fresh) as url, psycopg.connect(url) as connection:
            numbers.append(number_of(connection, name_of(url)))
    assert numbers[0] == numbers[2] != numbers[1]
