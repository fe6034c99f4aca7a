"""Alembic, told about the numbered SQL files in memory: no ini file, no revision scripts to keep in step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from alembic import op
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import Script, ScriptDirectory
from alembic.script.revision import RevisionMap
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from holdfast.migrate import Migration

# One migration at a time, whoever starts it; the lock goes with the session that holds it.
_LOCK = 7_226_311_052

# A migration waits this long for a table that is in use, then gives up without having changed anything.
_LOCK_TIMEOUT = "5s"


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
    """Run every migration that the database has not seen."""
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
    cursor.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'")
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
        with engine.connect() as connection:
            connection.exec_driver_sql(f"select pg_advisory_lock({_LOCK})")
            connection.exec_driver_sql("create schema if not exists holdfast")
            connection.commit()
            try:
                yield connection
                connection.commit()
            finally:
                connection.rollback()
                connection.exec_driver_sql(f"select pg_advisory_unlock({_LOCK})")
                connection.commit()
    finally:
        engine.dispose()


def _connect(url: str) -> Any:
    import psycopg

    return psycopg.connect(url)
