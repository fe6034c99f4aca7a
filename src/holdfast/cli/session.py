"""What most commands share: a client, and the options that mean the same everywhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli import exits, output

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.http_client import HttpClient
    from holdfast.verbs.facades import Calls

# How long a command repeats a request that gets no response: long enough for the API to restart, but no longer, because
# the terminal shows nothing in the meantime.
RETRY_SECONDS = 5.0

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def url_option(command: F) -> F:
    """The options that choose an API. They precede the command: `holdfast --url ... runs list`."""
    command = click.option("--token", metavar="TOKEN", help="The token for the API. Default: HOLDFAST_TOKEN.")(command)
    return click.option("--url", metavar="URL", help="Use the API at this URL. Default: HOLDFAST_URL.")(command)


def _given(name: str) -> str | None:
    """The value of an option that precedes the command."""
    found: str | None = (click.get_current_context().find_root().obj or {}).get(name)
    return found


def open_client() -> Client | HttpClient:
    """A client of the API if --url or HOLDFAST_URL chooses one, else of the database."""
    from holdfast.runtime.settings import load

    settings = load()
    url = _given("url") or settings.url
    if url is None:
        return open_database()
    from holdfast.http_client import HttpClient

    return HttpClient(url, _given("token") or settings.token, settings=settings, retry_seconds=RETRY_SECONDS)


def open_database() -> Client:
    """A client on the database, whether or not an API was chosen."""
    import logging

    from holdfast.client import Client

    # The pool logs every attempt to connect; the command reports once how it ended.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    return Client()


def open_only_database() -> Client:
    """A client on the database, for calls that the API does not offer. Raises an error if an API was chosen.

    --url chooses one. HOLDFAST_URL may be set for other commands, as long as a database is configured too.
    """
    from holdfast.runtime.settings import load

    settings = load()
    given = _given("url")
    if given or (settings.url and not settings.database_url):
        raise click.UsageError(
            f"this command needs the database, and cannot use the API at {given or settings.url}; "
            "run it where the database can be reached, with HOLDFAST_DATABASE_URL and without --url"
        )
    return open_database()


def for_each(ids: Iterable[str], call: Callable[[Calls, str], None]) -> int:
    """Make a call for each id, even if one fails. The first error determines the exit code."""
    from holdfast.domain.errors import DatabaseUnreachable, HoldfastError, ServerUnreachable

    code = exits.OK
    with open_client() as client:
        for id_ in ids:
            try:
                call(client, id_)
            except (DatabaseUnreachable, ServerUnreachable):
                raise
            except HoldfastError as error:
                output.error(str(error))
                code = code or exits.code_of(error)
    return code


PROGRAM = "holdfast"


def command_name() -> str:
    """What a user types to call this program: its name if it is on the PATH, otherwise its path."""
    installed = Path(sys.executable).with_name(PROGRAM)
    found = shutil.which(PROGRAM)
    if found and (not installed.exists() or Path(found).samefile(installed)):
        return PROGRAM
    if not installed.exists():
        return f"{sys.executable} -m {PROGRAM}"
    here = Path.cwd()
    return str(installed.relative_to(here) if installed.is_relative_to(here) else installed)
