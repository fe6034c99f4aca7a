"""`manage.py migrate` creates Holdfast's tables from the numbered SQL files, as `holdfast db upgrade` does.

Both ways run the same files through the same runner and record the same hashes, so either may follow the other.
"""

from __future__ import annotations

from typing import Any

from holdfast.django import databases
from holdfast.django.compat import task_backends
from holdfast.drivers import sessions
from holdfast.drivers.psycopg import OwnConnection
from holdfast.schema import alembic_run, migrate


def upgrade_to(number: str) -> Any:
    """Return a function for RunPython that brings the database to the SQL file of this number."""

    def forwards(apps: Any, schema_editor: Any) -> None:
        connection = schema_editor.connection
        if connection.vendor == "postgresql" and connection.alias in used_aliases():
            apply(databases.url_of(connection.alias), number)

    return forwards


def used_aliases() -> set[str]:
    """The databases of all Holdfast backends; the router's choice if TASKS names none yet."""
    from holdfast.django.backend import HoldfastBackend

    ours = [one for one in task_backends.all() if isinstance(one, HoldfastBackend)]
    return {one.database for one in ours} or {databases.chosen_alias({})}


def apply(url: str, number: str) -> None:
    """Run the SQL files up to this number. An existing schema must have been created by the same files."""
    own = [one for one in migrate.migrations() if one.number <= number]
    with OwnConnection.connect(url, session=sessions.CLIENT) as connection:
        at = migrate.applied(connection)
    if at is not None and int(at.number) >= int(number) and all(one.number in at.sha256 for one in own):
        migrate.require_same(at.sha256, own)
        return
    alembic_run.run(url, migrate.migrations() if at is not None and int(at.number) > int(number) else own)
