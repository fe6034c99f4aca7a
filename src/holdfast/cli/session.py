"""What most commands share: a client, and the options that mean the same everywhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.verbs.facades import Calls

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


@contextmanager
def open_client() -> Iterator[Calls]:
    """A client of the API if one was chosen, else of the database. Raises the reason if there can be none."""
    from holdfast.cli.remote import open_remote
    from holdfast.runtime.settings import load

    remote = open_remote(load())
    with remote or open_database() as client:
        yield client


@contextmanager
def open_database() -> Iterator[Client]:
    """A client on the database, whether or not an API was chosen."""
    from holdfast.client import Client

    # The pool logs every attempt to connect; the command reports once how it ended.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    with Client() as client:
        yield client


@contextmanager
def open_only_database() -> Iterator[Client]:
    """A client on the database, for calls that the API does not offer. Raises an error if an API was chosen.

    --url chooses one. HOLDFAST_URL may be set for other commands, as long as a database is configured too.
    """
    from holdfast.runtime.settings import load

    settings = load()
    given = (click.get_current_context().find_root().obj or {}).get("url")
    if given or (settings.url and not settings.database_url):
        raise click.UsageError(
            f"this command needs the database, and cannot use the API at {given or settings.url}; "
            "run it where the database can be reached, with HOLDFAST_DATABASE_URL and without --url"
        )
    with open_database() as client:
        yield client
