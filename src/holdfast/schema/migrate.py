"""Migrations: numbered SQL files, run in order by Alembic, one transaction each.

The database records its schema number, and the hash of each migration as it was applied. Code runs on its own schema
number and on the next one, so that a fleet can be upgraded without downtime. It rejects a database with an older
schema, with a newer one than the next, or created by a migration with a different text.

A released migration never changes: its hash is in `sql/migrations/frozen.sha256`. A file that is not listed there has
not been released yet (docs/decisions/0009).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

import psycopg

from holdfast.domain.errors import SchemaMismatch
from holdfast.drivers import sessions
from holdfast.drivers.psycopg import OwnConnection


class Migration(NamedTuple):
    number: str
    name: str
    sql: str

    @property
    def file(self) -> str:
        return f"{self.number}_{self.name}.sql"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


class Applied(NamedTuple):
    """The applied migrations: the newest number, and the hashes by number."""

    number: str
    sha256: Mapping[str, str]


def migrations() -> list[Migration]:
    """Return the numbered files, in order."""

    def parse(file: Traversable) -> Migration:
        number, _, name = file.name.removesuffix(".sql").partition("_")
        return Migration(number, name, file.read_text("utf-8"))

    folder = resources.files("holdfast.sql") / "migrations"
    return sorted(parse(file) for file in folder.iterdir() if file.name.endswith(".sql"))


def latest() -> str:
    return migrations()[-1].number


def applied(connection: psycopg.Connection[Any]) -> Applied | None:
    """Return the applied migrations; None if the database has no Holdfast schema."""
    found = connection.execute("select to_regclass('holdfast.migration')").fetchone()
    if not found or found[0] is None:
        return None
    # As one document: databases of the first releases have no column for the hashes.
    row = connection.execute(
        "select to_jsonb(migration) from holdfast.migration order by version_num desc limit 1"
    ).fetchone()
    return Applied(row[0]["version_num"], row[0].get("sha256") or {}) if row else None


def current(connection: psycopg.Connection[Any]) -> str | None:
    """Return the number of the database's schema; None if it has no Holdfast schema."""
    at = applied(connection)
    return at.number if at else None


def is_behind(connection: psycopg.Connection[Any]) -> bool:
    """Whether there is a migration that has not been applied to the database."""
    at = current(connection)
    return at is None or int(at) < int(latest())


def require(connection: psycopg.Connection[Any]) -> None:
    """Raise SchemaMismatch unless this code supports the schema of the database."""
    own = migrations()
    at, wanted = applied(connection), own[-1].number
    if at is None:
        raise SchemaMismatch("the database has no Holdfast schema yet; run: holdfast db upgrade")
    if int(at.number) < int(wanted):
        raise SchemaMismatch(
            f"the database is at schema {at.number}, but this release needs {wanted}; run: holdfast db upgrade"
        )
    if int(at.number) > int(wanted) + 1:
        raise SchemaMismatch(
            f"the database is at schema {at.number}, which is too new for this release (schema {wanted}); "
            "upgrade Holdfast on this machine"
        )
    require_same(at.sha256, own)


def require_same(recorded: Mapping[str, str], own: Sequence[Migration]) -> None:
    """Raise SchemaMismatch if an applied migration differs from the one of this release with the same number."""
    for migration in own:
        there = recorded.get(migration.number)
        if there not in (None, migration.sha256):
            raise SchemaMismatch(
                f"migration {migration.number} of this database differs from {migration.file} in this release "
                f"(sha256 {there[:12]} in the database, {migration.sha256[:12]} in the release); "
                "install the Holdfast release that upgraded the database, or a later one"
            )


def upgrade(url: str, on_wait: Callable[[str], None] | None = None) -> None:
    """Upgrade the database to the newest schema of this release. Safe to call from many processes at once.

    `on_wait` is called with one line whenever a migration is rolled back for other sessions and retried.
    """
    from holdfast.schema.alembic_run import run

    own = migrations()
    with OwnConnection.connect(url, session=sessions.CLIENT) as connection:
        at = applied(connection)
        if at is not None and int(at.number) >= int(own[-1].number):
            require(connection)
            if all(migration.number in at.sha256 for migration in own):
                return
    run(url, own, on_wait)
