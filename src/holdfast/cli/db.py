"""holdfast db."""

from __future__ import annotations

import click

from holdfast.cli import exits, output
from holdfast.cli.session import json_option


@click.group()
def db() -> None:
    """Upgrade and check the database, and print its URL."""


@db.command()
def upgrade() -> None:
    """Upgrade the database to the schema of this release. This is safe under load, and safe to run concurrently."""
    from holdfast.runtime.runtime import Runtime, connect
    from holdfast.schema import migrate

    with Runtime(check=False) as runtime:
        with connect(runtime.database_url) as connection:
            before = migrate.current(connection)
        if before is not None and int(before) > int(migrate.latest()):
            with connect(runtime.database_url) as connection:
                migrate.require(connection)
            output.note(
                f"the database is at schema {before}, newer than this release's {migrate.latest()}; nothing was changed"
            )
            return
        migrate.upgrade(runtime.database_url, on_wait=output.note)
        with connect(runtime.database_url) as connection:
            after = migrate.current(connection)
    if after == before:
        output.note(f"the database is already at schema {after}")
    else:
        was = "empty" if before is None else f"at schema {before}"
        output.note(f"the database is at schema {after}; it was {was}")


@db.command()
@json_option
def current(as_json: bool) -> None:
    """Print the version of the database's schema."""
    from holdfast.runtime.runtime import Runtime, connect
    from holdfast.schema import migrate

    with Runtime(check=False) as runtime, connect(runtime.database_url) as connection:
        at, wanted = migrate.current(connection), migrate.latest()
    if as_json:
        output.document({"current": at, "latest": wanted})
        return
    output.data(at or "none")
    if at != wanted:
        output.note(f"the schema of this release is {wanted}")


@db.command()
@json_option
def check(as_json: bool) -> int:
    """Compare the database's schema with its migrations."""
    from holdfast.runtime.runtime import Runtime
    from holdfast.schema.drift import check as find_drift

    with Runtime() as runtime:
        found = list(find_drift(runtime.database_url))
    if as_json:
        output.document({"drift": bool(found), "items": [str(one) for one in found]})
    else:
        for one in found:
            output.data(str(one))
        output.note(f"{len(found)} differences" if found else "no differences")
    return exits.ERROR if found else exits.OK


@db.command()
@click.argument("purpose", type=click.Choice(("reader", "client", "api", "worker")))
@click.argument("role")
def grants(purpose: str, role: str) -> None:
    """Print the statements that grant ROLE what a reader, a client, an API server or a worker needs.

    Run them as the schema's owner, and again after each upgrade: holdfast db grants worker NAME | psql DATABASE_URL
    """
    from holdfast.schema.grants import statements

    for statement in statements(purpose, role):
        output.data(statement)


@db.command()
def url() -> None:
    """Print the database's URL, for psql and similar tools. The embedded server runs only while a process uses it."""
    from pathlib import Path

    from holdfast.runtime.settings import load

    settings = load()
    given = settings.given_database_url()
    if given is not None:
        output.data(given)
        return
    from holdfast.embedded.locks import is_held
    from holdfast.embedded.places import Places

    places = Places(Path(settings.home).resolve())
    output.data(places.url())
    if not places.server_lock.exists() or not is_held(places.server_lock):
        output.note("the embedded server is not running; holdfast up starts it and keeps it running")
