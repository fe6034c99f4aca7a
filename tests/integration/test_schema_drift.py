"""What the migrations make is written down, and a database that differs says where."""

from __future__ import annotations

import psycopg
import pytest

from holdfast import schema_check


def test_the_schema_is_written_down(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert schema_check.describe(connection) == schema_check.expected(), "run: make schema"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("alter table holdfast.workers add column nickname text", "not made by a migration: column workers.nickname"),
        ("drop trigger leases_guard on holdfast.leases", "missing: trigger leases"),
        ("alter table holdfast.attempts drop constraint attempts_result", "missing: constraint attempts"),
        ("drop index holdfast.waiting_due", "missing: index waiting_due"),
        (
            "create or replace function holdfast.refuse() returns trigger language plpgsql as 'begin return new; end'",
            "missing: function refuse",
        ),
        (
            """create or replace function holdfast.now() returns timestamptz language sql stable parallel safe
               return coalesce(current_setting('holdfast.now', true)::timestamptz, statement_timestamp())""",
            "missing: function now",
        ),
    ],
)
def test_drift_is_told_by_name(database_url: str, change: str, told: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(change)
    assert any(line.startswith(told) for line in schema_check.check(database_url))


def test_a_month_that_comes_or_goes_is_no_drift(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select holdfast.make_partitions(now() + interval '1 year')")
    assert schema_check.check(database_url) == []
