"""What most commands share: a client, and the options that mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli import exits, output

if TYPE_CHECKING:
    from holdfast.client import Client
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


@contextmanager
def open_client() -> Iterator[Calls]:
    """A client of the API if --url or HOLDFAST_URL chooses one, else of the database."""
    from holdfast.runtime.settings import load

    settings = load()
    url = _given("url") or settings.url
    if url is None:
        with open_database() as client:
            yield client
        return
    from holdfast.http_client import HttpClient

    token = _given("token") or settings.token
    with HttpClient(url, token, settings=settings, retry_seconds=RETRY_SECONDS) as remote:
        yield remote


@contextmanager
def open_database() -> Iterator[Client]:
    """A client on the database, whether or not an API was chosen."""
    import logging

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
    given = _given("url")
    if given or (settings.url and not settings.database_url):
        raise click.UsageError(
            f"this command needs the database, and cannot use the API at {given or settings.url}; "
            "run it where the database can be reached, with HOLDFAST_DATABASE_URL and without --url"
        )
    with open_database() as client:
        yield client


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
