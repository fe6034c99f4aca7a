"""holdfast api and holdfast openapi."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import click

from holdfast.cli import output
from holdfast.cli.worker import tasks_option, with_parent_option


@click.command()
@click.option("--host", help="The address to listen on. Default: HOLDFAST_HOST.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 picks a free one. Default: HOLDFAST_PORT.")
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Number of server processes."
)
@tasks_option
@with_parent_option
def api(host: str | None, port: int | None, processes: int, tasks: tuple[str, ...]) -> None:
    """Serve the API over HTTP.

    On loopback, tokens are optional; on any other address, the server starts only if there is a token.
    """
    from holdfast.runtime.settings import load

    settings = load()
    with _extra():
        from holdfast.http.server import serve
    given = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    serve(
        replace(settings, tasks=(*settings.tasks, *tasks), **given),  # type: ignore[arg-type]
        processes=processes,
        # With JSON logs, an event reports the address instead.
        started=None if settings.log_format == "json" else lambda url: output.note(f"the API listens on {url}"),
    )


@click.command()
def openapi() -> None:
    """Print the OpenAPI document of the API, including the registered tasks."""
    from holdfast.domain.tasks import load_modules
    from holdfast.runtime.settings import load

    settings = load()
    with _extra():
        from holdfast.http.nouns import NOUNS
        from holdfast.http.openapi import build
    load_modules(("holdfast.tasks", *settings.tasks))
    output.document(build(NOUNS, settings))


@contextmanager
def _extra() -> Iterator[None]:
    """Import modules of the extra `server`."""
    from holdfast.domain.errors import ConfigurationError

    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"the API needs the extra `server`: pip install 'holdfast[server]' ({error})"
        ) from error
