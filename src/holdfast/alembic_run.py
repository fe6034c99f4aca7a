"""Alembic, told about the numbered SQL files in memory: no ini file, no revision scripts to keep in step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import uniform
from time import monotonic, sleep
from types import ModuleType
from typing import Any

import psycopg
from alembic import op
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import Script, ScriptDirectory
from alembic.script.revision import RevisionMap
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from holdfast.drivers import sessions
from holdfast.drivers.sessions import OwnConnection
from holdfast.migrate import Migration

# One migration at a time, whichever process starts it; the lock goes with the transaction that holds it.
_LOCK = 7_226_311_052

# A migration that waits for a table makes every later user of it wait too. So it gives up soon, without having changed
# anything, and tries again; this long in all.
_KEEP_TRYING_SECONDS = 60.0
_PAUSES = (0.5, 2.0)


def _script(migration: Migration, previous: str | None) -> Script:
    module = ModuleType(f"holdfast_{migration.number}")
    module.__dict__.update(
        revision=migration.number,
        down_revision=previous,
        upgrade=lambda: _apply(op.get_bind(), migration.sql),
        __doc__=migration.name,
    )
    return Script(module, migration.number, f"{migration.number}_{migration.name}.sql")


def run(url: str, migrations: list[Migration]) -> None:
    """Run every migration that the database has not seen; again if a table that it needs stays in use."""
    ends_at = monotonic() + _KEEP_TRYING_SECONDS
    while True:
        try:
            return _run(url, migrations)
        except psycopg.errors.LockNotAvailable:
            if monotonic() >= ends_at:
                raise
        sleep(uniform(*_PAUSES))


def _run(url: str, migrations: list[Migration]) -> None:
    directory = ScriptDirectory(".")
    chain = [None, *(m.number for m in migrations)]
    directory.revision_map = RevisionMap(
        lambda: [_script(m, previous) for m, previous in zip(migrations, chain, strict=False)]
    )

    def steps(revision: Any, _: Any) -> Any:
        return directory._upgrade_revs("head", revision)  # noqa: SLF001 - as alembic.command.upgrade does

    with _connection(url) as connection, EnvironmentContext(Config(), directory, fn=steps) as context:
        context.configure(
            connection=connection,
            transaction_per_migration=True,
            version_table="migration",
            version_table_schema="holdfast",
        )
        context.run_migrations()


def _apply(connection: Connection, text: str) -> None:
    cursor = connection.connection.cursor()
    cursor.execute(sessions.MIGRATION.local(cursor.connection.info.server_version))
    cursor.execute(text)
    cursor.close()


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    engine = create_engine(
        "postgresql+psycopg://",
        poolclass=NullPool,
        creator=lambda: _connect(url),
        isolation_level="READ COMMITTED",
    )
    try:
        with _alone(url), engine.connect() as connection:
            connection.exec_driver_sql("create schema if not exists holdfast")
            connection.commit()
            try:
                yield connection
                connection.commit()
            finally:
                connection.rollback()
    finally:
        engine.dispose()


@contextmanager
def _alone(url: str) -> Iterator[None]:
    """Hold the lock, in a transaction of its own: behind a pooler, a lock of the session would be left there."""
    with _connect(url) as connection:
        connection.execute("set local lock_timeout = 0")
        connection.execute(f"select pg_advisory_xact_lock({_LOCK})")
        yield
        connection.rollback()


def _connect(url: str) -> OwnConnection:
    connection = OwnConnection.connect(url, session=sessions.MIGRATION)
    connection.autocommit = False
    return connection
