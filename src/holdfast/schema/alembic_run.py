"""Runs the numbered SQL files with Alembic, from memory: there is no ini file and there are no revision scripts.

A migration never blocks other sessions for long. If it locked its tables one by one, it would deadlock under load: some
statement always holds one of them and waits for another. So it first tries to get all locks at once, without waiting,
which does not disturb other sessions. If that fails for a few seconds, it waits for each table, half a second at first;
then it is rolled back, so that other sessions can continue, and retried. Later attempts wait up to five seconds.

Only one process migrates at a time. The advisory lock for this belongs to a transaction, not to a session, so that it
works through a transaction pooler as well; each migration checks again which number the database is at.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psycopg
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import Script, ScriptDirectory
from alembic.script.revision import RevisionMap
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from holdfast.domain.errors import UpgradeBlocked
from holdfast.drivers import sessions
from holdfast.drivers.psycopg import OwnConnection
from holdfast.schema import migrate
from holdfast.schema.migrate import Migration

# One migration at a time, in any process; the lock is released with its transaction.
_LOCK = 7_226_311_052

# How long an attempt tries to lock all tables at once, and how often; how long it then waits for each.
_QUIET_SECONDS, _QUIET_EVERY = 5.0, 0.005
_LOCK_SECONDS = (0.5, 0.5, 0.5, 1.0, 2.0, 5.0)
# The longest pause between attempts, and when to give up.
_PAUSE_SECONDS = 1.0
_GIVE_UP_SECONDS = 120.0

# The tables that a migration changes.
_CHANGED = re.compile(r"\b(?:alter\s+table|on)\s+(?:if\s+exists\s+)?(?:only\s+)?holdfast\.(\w+)", re.IGNORECASE)


class _Overtaken(Exception):
    """Another process applied the migration in the meantime."""


def run(url: str, migrations: list[Migration], on_wait: Callable[[str], None] | None = None) -> None:
    """Run every pending migration, and try again while other sessions hold locks on its tables."""
    give_up_at = time.monotonic() + _GIVE_UP_SECONDS
    tries = 0
    while True:
        try:
            with _connection(url) as connection:
                _migrate(connection, migrations, _LOCK_SECONDS[min(tries, len(_LOCK_SECONDS) - 1)])
            return
        except _Overtaken:
            continue
        except (psycopg.Error, DBAPIError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            if not isinstance(cause, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
                raise
            if time.monotonic() + _PAUSE_SECONDS > give_up_at:
                raise UpgradeBlocked(
                    f"the migration could not lock its tables in {_GIVE_UP_SECONDS:g} s because other sessions were "
                    "using them, and was rolled back; end long transactions (see pg_stat_activity), then run: "
                    "holdfast db upgrade"
                ) from error
            tries += 1
            if on_wait is not None:
                on_wait(f"other sessions are using tables that the migration changes; retrying (attempt {tries})")
            time.sleep(random.uniform(_PAUSE_SECONDS / 2, _PAUSE_SECONDS))


def _prepare(connection: Connection, migrations: list[Migration], lock_seconds: float) -> None:
    """Create the migration table, compare its hashes with those of this release, and record missing ones."""
    cursor = _begin(connection, lock_seconds)
    cursor.execute("create schema if not exists holdfast")
    cursor.execute(
        "create table if not exists holdfast.migration "
        "(version_num varchar(32) not null constraint migration_pkc primary key)"
    )
    cursor.execute(
        "select from pg_attribute where attrelid = 'holdfast.migration'::regclass and attname = 'sha256' "
        "and not attisdropped"
    )
    if not cursor.rowcount:
        cursor.execute("alter table holdfast.migration add column sha256 jsonb")
    at = migrate.applied(cursor.connection)
    if at is not None:
        migrate.require_same(at.sha256, migrations)
        _record(cursor, [one for one in migrations if one.number <= at.number and one.number not in at.sha256])
    connection.commit()


def _migrate(connection: Connection, migrations: list[Migration], lock_seconds: float) -> None:
    _prepare(connection, migrations, lock_seconds)
    by_number = {migration.number: migration for migration in migrations}
    chain = [None, *by_number]

    def script(migration: Migration, previous: str | None) -> Script:
        module = ModuleType(f"holdfast_{migration.number}")
        module.__dict__.update(
            revision=migration.number,
            down_revision=previous,
            upgrade=lambda: _apply(connection, migration, previous, lock_seconds),
            __doc__=migration.name,
        )
        return Script(module, migration.number, migration.file)

    directory = ScriptDirectory(".")
    directory.revision_map = RevisionMap(lambda: [script(m, p) for m, p in zip(migrations, chain, strict=False)])

    def steps(revision: Any, _: Any) -> Any:
        return directory._upgrade_revs("head", revision)  # noqa: SLF001 - as alembic.command.upgrade does

    def record(*, step: MigrationInfo, **_: Any) -> None:
        _record(connection.connection.cursor(), [by_number[str(step.up_revision_id)]])

    # Without an EnvironmentContext, which is global: two threads may migrate two databases.
    MigrationContext.configure(
        connection,
        opts={
            "fn": steps,
            "transaction_per_migration": True,
            "version_table": "migration",
            "version_table_schema": "holdfast",
            "on_version_apply": [record],
        },
    ).run_migrations()


def _apply(connection: Connection, migration: Migration, previous: str | None, lock_seconds: float) -> None:
    cursor = _begin(connection, lock_seconds)
    if migrate.current(cursor.connection) != previous:
        raise _Overtaken
    _lock_at_once(cursor, migration)
    cursor.execute(migration.sql)
    cursor.close()


def _lock_at_once(cursor: Any, migration: Migration) -> None:
    """Lock every table that the migration changes, without waiting; if that never succeeds, lock nothing."""
    names = sorted({f"holdfast.{name}" for name in _CHANGED.findall(migration.sql)})
    cursor.execute(
        "select string_agg(pg_class.oid::regclass::text, ', ') from unnest(%s::text[]) as name "
        "join pg_class on pg_class.oid = to_regclass(name) and relkind in ('r', 'p')",
        [names],
    )
    (tables,) = cursor.fetchone()
    ends = time.monotonic() + _QUIET_SECONDS
    while tables and time.monotonic() < ends:
        cursor.execute("savepoint quiet")
        try:
            cursor.execute(f"lock table {tables} in access exclusive mode nowait")
            return
        except psycopg.errors.LockNotAvailable:
            cursor.execute("rollback to savepoint quiet")
        time.sleep(_QUIET_EVERY)


def _begin(connection: Connection, lock_seconds: float) -> Any:
    """Wait for the advisory lock, then set a short lock timeout for the rest of the transaction."""
    cursor = connection.connection.cursor()
    cursor.execute(sessions.MIGRATION.local(cursor.connection.info.server_version))
    cursor.execute("set local lock_timeout = 0")
    cursor.execute(f"select pg_advisory_xact_lock({_LOCK})")
    cursor.execute(f"set local lock_timeout = {lock_seconds * 1000:.0f}")
    return cursor


def _record(cursor: Any, migrations: list[Migration]) -> None:
    hashes = json.dumps({migration.number: migration.sha256 for migration in migrations})
    cursor.execute("update holdfast.migration set sha256 = coalesce(sha256, '{}') || %s::jsonb", [hashes])


def _connect(url: str) -> OwnConnection:
    connection = OwnConnection.connect(url, session=sessions.MIGRATION, prepare_threshold=None)
    connection.autocommit = False
    return connection


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    engine = create_engine(
        "postgresql+psycopg://", poolclass=NullPool, creator=lambda: _connect(url), isolation_level="READ COMMITTED"
    )
    try:
        with engine.connect() as connection:
            yield connection
            connection.commit()
    finally:
        engine.dispose()
