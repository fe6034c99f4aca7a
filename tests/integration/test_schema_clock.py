"""One clock: the database's, through one function that reads nothing else."""

from __future__ import annotations

from datetime import timedelta

import psycopg

from holdfast.schema.migrate import migrations
from holdfast.testing import clock


def _clock(connection: psycopg.Connection) -> tuple[str, str, str, str]:
    row = connection.execute(
        """
        select pg_get_function_sqlbody(pg_proc.oid), provolatile::text, proparallel::text, lanname::text
        from pg_proc join pg_language on pg_language.oid = prolang
        where pg_proc.oid = 'holdfast.now()'::regprocedure
        """
    ).fetchone()
    assert row is not None
    return row


def test_clock_function_has_the_expected_definition(database_url: str) -> None:
    """It reads no setting and no table: a role that could change one could forge the age of a lease."""
    with psycopg.connect(database_url) as connection:
        assert _clock(connection) == ("RETURN statement_timestamp()", "s", "s", "sql")
    assert clock.PRODUCTION.strip() in migrations()[0].sql


def test_every_statement_has_one_time_and_the_next_a_later_one(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        first = connection.execute("select holdfast.now() = holdfast.now(), holdfast.now()").fetchone()
        second = connection.execute("select holdfast.now()").fetchone()
    assert first is not None
    assert second is not None
    assert first[0] is True
    assert second[0] > first[1], "in one transaction: a lease granted after a long wait must not be old already"


def test_tests_can_replace_the_clock(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        clock.install(connection)
        clock.install(connection)
        before = connection.execute("select holdfast.now()").fetchone()
        clock.move(connection, timedelta(days=3))
        after = connection.execute("select holdfast.now()").fetchone()
        assert before is not None
        assert after is not None
        assert timedelta(days=3) < after[0] - before[0] < timedelta(days=3, minutes=5)
        clock.reset(connection)
        assert _clock(connection)[1:] == ("s", "s", "sql")
