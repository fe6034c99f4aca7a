"""Migrations: applied once and in order, by any process, without blocking other sessions for long."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.client import Client
from holdfast.domain.errors import ConfigurationError, SchemaMismatch, UpgradeBlocked
from holdfast.runtime.settings import Settings
from holdfast.schema import alembic_run, migrate
from holdfast.schema.migrate import Migration
from holdfast.testing.databases import scratch
from tests.integration.worker_support import eventually


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    with scratch(server_url) as url:
        yield url


def test_files_are_numbered_without_a_gap() -> None:
    numbers = [migration.number for migration in migrate.migrations()]
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
    assert migrate.latest() == numbers[-1]


def test_an_empty_database_is_brought_to_the_latest(empty_url: str) -> None:
    with psycopg.connect(empty_url) as connection:
        assert migrate.current(connection) is None
        with pytest.raises(SchemaMismatch, match="db upgrade"):
            migrate.require(connection)
    migrate.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        assert migrate.current(connection) == migrate.latest()
        migrate.require(connection)


def test_upgrading_again_changes_nothing(empty_url: str) -> None:
    migrate.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        before = connection.execute("select oid, relname from pg_class order by 1").fetchall()
    migrate.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("select oid, relname from pg_class order by 1").fetchall() == before


def test_concurrent_upgrades_apply_each_migration_once(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(migrate.upgrade, [empty_url] * 4))
    with psycopg.connect(empty_url) as connection:
        assert migrate.current(connection) == migrate.latest()


def test_each_migration_is_applied_completely_or_not_at_all(empty_url: str) -> None:
    """A failed migration leaves the database at the previous one."""
    good = Migration("0001", "good", "create table holdfast.good ()")
    bad = Migration("0002", "bad", "create table holdfast.half (); select 1 / 0")
    with pytest.raises(Exception, match="division by zero"):
        alembic_run.run(empty_url, [good, bad])
    with psycopg.connect(empty_url) as connection:
        assert migrate.current(connection) == "0001"
        found = connection.execute("select to_regclass('holdfast.good') is not null, to_regclass('holdfast.half')")
        assert found.fetchone() == (True, None)
    alembic_run.run(empty_url, [good, bad._replace(sql="create table holdfast.whole ()")])
    with psycopg.connect(empty_url) as connection:
        assert migrate.current(connection) == "0002"


def test_migration_is_rolled_back_and_retried_until_the_table_is_free(empty_url: str) -> None:
    """While it waits for a lock, all later statements on the table wait too."""
    good = Migration("0001", "good", "create table holdfast.busy (n integer)")
    further = Migration("0002", "alter", "alter table holdfast.busy add m integer")
    alembic_run.run(empty_url, [good])
    given_way = threading.Semaphore(0)
    with ThreadPoolExecutor(1) as threads, psycopg.connect(empty_url) as holder:
        holder.execute("select * from holdfast.busy")
        upgrading = threads.submit(alembic_run.run, empty_url, [good, further], lambda _: given_way.release())
        for _ in range(2):
            assert given_way.acquire(timeout=30)
            with psycopg.connect(empty_url) as writer:
                writer.execute("insert into holdfast.busy values (1)")
        holder.rollback()
        upgrading.result(timeout=60)
    with psycopg.connect(empty_url) as connection:
        assert migrate.current(connection) == "0002"


def test_migration_that_is_blocked_too_long_gives_up_without_a_change(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alembic_run, "_QUIET_SECONDS", 0.1)
    monkeypatch.setattr(alembic_run, "_LOCK_SECONDS", (0.05,))
    monkeypatch.setattr(alembic_run, "_GIVE_UP_SECONDS", 0.0)
    good = Migration("0001", "good", "create table holdfast.busy (n integer)")
    alembic_run.run(empty_url, [good])
    with psycopg.connect(empty_url) as connection:
        connection.execute("select * from holdfast.busy")
        with pytest.raises(UpgradeBlocked, match="holdfast db upgrade"):
            alembic_run.run(empty_url, [good, Migration("0002", "alter", "alter table holdfast.busy add m integer")])
    with psycopg.connect(empty_url) as connection:
        assert migrate.current(connection) == "0001"


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_whose_encoding_is_not_utf8_is_refused_by_name(server_url: str, encoding: str) -> None:
    name = f"holdfast_encoded_{encoding.lower()}_{os.getpid()}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"create database {name} encoding '{encoding}' locale 'C' template template0")
        url = urlsplit(server_url)._replace(path=f"/{name}").geturl()
        try:
            with pytest.raises(ConfigurationError, match=f"encoding {encoding}.*UTF8.*create database"):
                migrate.upgrade(url)
            with pytest.raises(ConfigurationError, match=encoding):
                Client(Settings(database_url=url))
        finally:
            connection.execute(f"drop database {name} with (force)")


def test_migration_of_tables_that_statements_use_together_causes_no_deadlock(empty_url: str) -> None:
    """Each session locks the second table first: one in between would hold a lock that the migration needs."""
    good = Migration("0001", "good", "create table holdfast.a (n integer); create table holdfast.b (n integer)")
    further = Migration("0002", "alter", "alter table holdfast.a add m integer; alter table holdfast.b add m integer")
    alembic_run.run(empty_url, [good])
    upgraded = threading.Event()

    def work(_: int) -> int:
        done = 0
        with psycopg.connect(empty_url) as connection:
            while not upgraded.is_set():
                with connection.transaction():
                    connection.execute("insert into holdfast.b values (1)")
                    connection.execute("insert into holdfast.a values (1)")
                done += 1
        return done

    with ThreadPoolExecutor(3) as threads:
        working = [threads.submit(work, number) for number in range(3)]
        with psycopg.connect(empty_url, autocommit=True) as watcher:
            eventually(lambda: watcher.execute("select from holdfast.a limit 1").rowcount)
        try:
            alembic_run.run(empty_url, [good, further])
        finally:
            upgraded.set()
        assert sum(one.result() for one in working) > 0


def test_migration_waits_longer_for_each_lock_after_short_waits_failed(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If some statement always holds the table, only a longer wait succeeds."""
    monkeypatch.setattr(alembic_run, "_QUIET_SECONDS", 0.1)
    monkeypatch.setattr(alembic_run, "_LOCK_SECONDS", (0.05, 30.0))
    good = Migration("0001", "good", "create table holdfast.busy (n integer)")
    further = Migration("0002", "alter", "alter table holdfast.busy add m integer")
    alembic_run.run(empty_url, [good])
    given_way = threading.Semaphore(0)
    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(empty_url) as holder,
        psycopg.connect(empty_url, autocommit=True) as watcher,
    ):
        holder.execute("select * from holdfast.busy")
        upgrading = threads.submit(alembic_run.run, empty_url, [good, further], lambda _: given_way.release())
        assert given_way.acquire(timeout=30)
        waiting = (
            "select from pg_locks join pg_database on pg_database.oid = database and datname = current_database()"
            " where relation = 'holdfast.busy'::regclass and not granted"
        )
        eventually(lambda: watcher.execute(waiting).rowcount)
        holder.rollback()
        upgrading.result(timeout=60)
        assert not given_way.acquire(blocking=False)


def test_settings_of_the_role_do_not_stop_a_migration(empty_url: str) -> None:
    strict = psycopg.conninfo.make_conninfo(empty_url, options="-c statement_timeout=50ms -c lock_timeout=1ms")
    alembic_run.run(strict, [Migration("0001", "slow", "select pg_sleep(0.2)")])
    with psycopg.connect(empty_url) as connection:
        assert migrate.current(connection) == "0001"


@pytest.mark.parametrize(("at", "says"), [(0, None), (1, None), (2, "too new"), (-1, "needs")])
def test_code_works_on_its_own_schema_and_the_next_one(database_url: str, at: int, says: str | None) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update holdfast.migration set version_num = %s", [f"{int(migrate.latest()) + at:04}"])
        if says is None:
            migrate.require(connection)
        else:
            with pytest.raises(SchemaMismatch, match=says):
                migrate.require(connection)


def test_an_ordinary_owner_of_a_database_can_migrate_it(server_url: str) -> None:
    """No superuser, no extension."""
    with scratch(server_url) as url, psycopg.connect(server_url, autocommit=True) as connection:
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        role = f"{name}_owner"
        connection.execute(f"create role {role} login")
        try:
            connection.execute(f"alter database {name} owner to {role}")
            migrate.upgrade(psycopg.conninfo.make_conninfo(url, options=f"-c role={role}"))
            with psycopg.connect(url) as migrated:
                assert migrate.current(migrated) == migrate.latest()
        finally:
            connection.execute(f"drop database {name} with (force)")
            connection.execute(f"drop role {role}")
