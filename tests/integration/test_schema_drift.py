"""The schema that the migrations create is stored as text, and differences in a database are reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.domain.errors import SchemaMismatch
from holdfast.embedded.places import binaries
from holdfast.schema import drift as schema_check
from holdfast.schema import migrate
from holdfast.testing.databases import scratch
from tests.postgres_support import DEBIAN_15, postgres, restored

needs_15 = pytest.mark.skipif(not DEBIAN_15.exists(), reason=f"there is no PostgreSQL 15 in {DEBIAN_15}")


@pytest.fixture(scope="module")
def server_15() -> Iterator[str]:
    with postgres(DEBIAN_15) as url:
        yield url


@pytest.fixture(scope="module")
def restored_15(server_15: str) -> Iterator[str]:
    """The name of a database of PostgreSQL 15 that was migrated, dumped and restored."""
    with scratch(server_15) as original, scratch(server_15) as copy:
        migrate.upgrade(original)
        assert schema_check.check(original) == []
        restored(DEBIAN_15, original, copy)
        yield str(psycopg.conninfo.conninfo_to_dict(copy)["dbname"])


def programs_for(server_url: str) -> Path:
    """Programs of the server's own version."""
    with psycopg.connect(server_url) as connection:
        major = connection.info.server_version // 10000
    known = {18: binaries, 15: lambda: DEBIAN_15}
    if major not in known:
        pytest.skip(f"there is no pg_dump of PostgreSQL {major} here")
    return known[major]()


def test_schema_matches_the_stored_description(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert schema_check.describe(connection) == schema_check.expected(), "run: make schema"


DRIFT = {
    "column added": (
        "alter table holdfast.workers add column nickname text",
        "not created by a migration: column workers.nickname",
    ),
    "default changed": ("alter table holdfast.ready alter excused set default 1", "missing: column ready.excused"),
    "not null dropped": ("alter table holdfast.ready alter queue drop not null", "missing: column ready.queue"),
    "identity dropped": (
        "alter table holdfast.outbox alter id drop identity",
        "missing: column outbox.id bigint not null generated always as identity",
    ),
    "constraint dropped": (
        "alter table holdfast.attempts drop constraint attempts_result",
        "missing: constraint attempts attempts_result",
    ),
    "check changed": (
        """alter table holdfast.maps drop constraint maps_counters, add constraint maps_counters check (
           open between 0 and total or unsuccessful between 0 and total - open)""",
        "missing: constraint maps maps_counters",
    ),
    "check not validated": (
        """alter table holdfast.maps drop constraint maps_counters, add constraint maps_counters check (
           open between 0 and total and unsuccessful between 0 and total - open) not valid""",
        "missing: constraint maps maps_counters",
    ),
    "index dropped": ("drop index holdfast.waiting_due", "missing: index waiting_due"),
    "index with another condition": (
        """drop index holdfast.waiting_due;
           create index waiting_due on holdfast.waiting (due_at) where blockers = 1""",
        "missing: index waiting_due",
    ),
    "index invalid": (
        "update pg_index set indisvalid = false where indexrelid = 'holdfast.waiting_due'::regclass",
        "not created by a migration: index waiting_due",
    ),
    "trigger dropped": ("drop trigger leases_guard on holdfast.leases", "missing: trigger leases"),
    "trigger disabled": (
        "alter table holdfast.leases disable trigger leases_guard",
        "missing: trigger leases CREATE TRIGGER leases_guard",
    ),
    "trigger of replicas only": (
        "alter table holdfast.ready enable replica trigger ready_left",
        "missing: trigger ready CREATE TRIGGER ready_left",
    ),
    "trigger with another condition": (
        """drop trigger waiting_never_moves on holdfast.waiting;
           create trigger waiting_never_moves after update on holdfast.waiting for each row
           when ((old.run_id, old.number) is distinct from (new.run_id, new.number))
           execute function holdfast.refuse('a waiting run keeps its attempt number')""",
        "missing: trigger waiting CREATE TRIGGER waiting_never_moves",
    ),
    "rule added": (
        "create rule silent as on delete to holdfast.logs do instead nothing",
        "not created by a migration: rule logs CREATE RULE silent",
    ),
    "function with another source": (
        "create or replace function holdfast.refuse() returns trigger language plpgsql as 'begin return new; end'",
        "missing: function refuse",
    ),
    "function with another body": (
        """create or replace function holdfast.now() returns timestamptz language sql stable parallel safe
           return coalesce(current_setting('holdfast.now', true)::timestamptz, statement_timestamp())""",
        "missing: function now",
    ),
    "setting of a function changed": (
        "alter function holdfast.make_partitions set lock_timeout = '1h'",
        "missing: function make_partitions",
    ),
    "settings of a function reset": (
        "alter function holdfast.guard_lease() reset all",
        "missing: function guard_lease()",
    ),
    "function runs as its owner": ("alter function holdfast.refuse() security definer", "missing: function refuse()"),
    "function volatile": ("alter function holdfast.meets volatile", "missing: function meets"),
    "fill factor reset": (
        "alter table holdfast.jobs reset (fillfactor)",
        "missing: relation jobs with fillfactor = 50",
    ),
    "autovacuum off": (
        "alter table holdfast.ready set (autovacuum_enabled = off)",
        "not created by a migration: relation ready with autovacuum_",
    ),
    "table unlogged": ("alter table holdfast.ready set unlogged", "missing: relation ready"),
    "row security on": ("alter table holdfast.runs enable row level security", "missing: relation runs"),
    "table added": ("create table holdfast.notes ()", "not created by a migration: relation notes"),
    "partition detached": (
        "alter table holdfast.logs detach partition holdfast.logs_default",
        "missing: relation logs_default DEFAULT",
    ),
    "view replaced": (
        """do $$ begin execute 'create or replace view holdfast.run_status as '
           || replace(pg_get_viewdef('holdfast.run_status'::regclass), 'RUNNING', 'GOING'); end $$""",
        "missing: view run_status",
    ),
}


@pytest.mark.parametrize(("change", "expected"), DRIFT.values(), ids=DRIFT)
def test_drift_is_named(database_url: str, change: str, expected: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(change)
    found = schema_check.check(database_url)
    assert any(line.startswith(expected) for line in found), found


def test_new_or_dropped_month_is_not_drift(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select holdfast.make_partitions(now() + interval '1 year')")
    assert schema_check.check(database_url) == []


def test_a_database_of_a_later_release_is_not_compared(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update holdfast.migration set version_num = %s", [f"{int(migrate.latest()) + 1:04}"])
    with pytest.raises(SchemaMismatch, match="holdfast db check from the release"):
        schema_check.check(database_url)


def test_restored_dump_has_no_drift(database_url: str, server_url: str) -> None:
    programs = programs_for(server_url)
    with scratch(server_url) as copy, scratch(server_url) as copy_of_copy:
        restored(programs, database_url, copy)
        assert schema_check.check(copy) == []
        restored(programs, copy, copy_of_copy)
        assert schema_check.check(copy_of_copy) == []
        with psycopg.connect(copy) as connection:
            migrate.require(connection)


@needs_15
def test_restored_dump_of_postgresql_15_has_no_drift(server_15: str, restored_15: str) -> None:
    with scratch(server_15, template=restored_15) as copy:
        assert schema_check.check(copy) == []


@needs_15
def test_dump_of_postgresql_15_restored_on_the_server_under_test_has_no_drift(server_15: str, server_url: str) -> None:
    with scratch(server_15) as original, scratch(server_url) as copy:
        migrate.upgrade(original)
        restored(DEBIAN_15, original, copy)
        assert schema_check.check(copy) == []


@needs_15
@pytest.mark.parametrize(("change", "expected"), DRIFT.values(), ids=DRIFT)
def test_drift_in_a_restored_dump_is_named(server_15: str, restored_15: str, change: str, expected: str) -> None:
    with scratch(server_15, template=restored_15) as copy:
        with psycopg.connect(copy, autocommit=True) as connection:
            connection.execute(change)
        found = schema_check.check(copy)
        assert any(line.startswith(expected) for line in found), found
