"""Migrations: numbered SQL files, run in order by Alembic, one transaction each.

The database records the number it is at. Code runs on its own number and on the next one, so a fleet can be upgraded
without standing still; it refuses a database that is older than it needs or further ahead than that.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

import psycopg

from holdfast.domain.errors import SchemaMismatch
from holdfast.drivers import sessions
from holdfast.drivers.sessions import OwnConnection


class Migration(NamedTuple):
    number: str
    name: str
    sql: str


def migrations() -> list[Migration]:
    """The numbered files, in order."""

    def parse(file: Traversable) -> Migration:
        number, _, name = file.name.removesuffix(".sql").partition("_")
        return Migration(number, name, file.read_text("utf-8"))

    folder = resources.files("holdfast.sql") / "migrations"
    return sorted(parse(file) for file in folder.iterdir() if file.name.endswith(".sql"))


def latest() -> str:
    return migrations()[-1].number


def current(connection: psycopg.Connection[Any]) -> str | None:
    """The number that the database is at; None if Holdfast has never been there."""
    found = connection.execute("select to_regclass('holdfast.migration')").fetchone()
    if not found or found[0] is None:
        return None
    row = connection.execute("select max(version_num) from holdfast.migration").fetchone()
    return str(row[0]) if row and row[0] is not None else None


def is_behind(connection: psycopg.Connection[Any]) -> bool:
    """Whether there is a migration that the database has not seen."""
    at = current(connection)
    return at is None or int(at) < int(latest())


def require(connection: psycopg.Connection[Any]) -> None:
    """Raise SchemaMismatch unless this code can work on this database."""
    at, wanted = current(connection), latest()
    if at is None:
        raise SchemaMismatch("the database has no Holdfast schema yet; run: holdfast db upgrade")
    if int(at) < int(wanted):
        raise SchemaMismatch(f"the database is at schema {at}, this code needs {wanted}; run: holdfast db upgrade")
    if int(at) > int(wanted) + 1:
        raise SchemaMismatch(
            f"the database is at schema {at}, which is newer than this code (schema {wanted}) can use; "
            "upgrade Holdfast on this machine"
        )


def upgrade(url: str) -> None:
    """Bring the database to the newest schema that this code knows. Safe to call from many processes at once."""
    from holdfast.alembic_run import run

    with OwnConnection.connect(url, session=sessions.CLIENT) as connection:
        if current(connection) is not None and not is_behind(connection):
            require(connection)
            return
    run(url, migrations())
