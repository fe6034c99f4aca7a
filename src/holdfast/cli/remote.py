"""Commands over HTTP: with `--url`, or HOLDFAST_URL, they use an API instead of a database."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

# How long a command sends a request again that has no answer: as long as a restart of the API takes, because someone
# may be looking at a silent terminal.
RETRY_SECONDS = 5.0

if TYPE_CHECKING:
    from holdfast.runtime.settings import Settings
    from holdfast.verbs.facades import Calls


def url_option(command: Any) -> Any:
    """The options that choose an API. They precede the command: `holdfast --url ... runs list`."""
    command = click.option("--token", metavar="TOKEN", help="The token for the API. Default: HOLDFAST_TOKEN.")(command)
    return click.option("--url", metavar="URL", help="Use the API at this URL. Default: HOLDFAST_URL.")(command)


def chosen(settings: Settings) -> tuple[str | None, str | None]:
    """The address and the token that this command was given, or that the settings name."""
    context = click.get_current_context(silent=True)
    given = (context.find_root().obj if context is not None else None) or {}
    return given.get("url") or settings.url, given.get("token") or settings.token


def open_remote(settings: Settings) -> AbstractContextManager[Calls] | None:
    """A client of the API, if one was chosen."""
    url, token = chosen(settings)
    if url is None:
        return None
    from holdfast.http_client import HttpClient

    return HttpClient(url, token, settings=settings, retry_seconds=RETRY_SECONDS)
