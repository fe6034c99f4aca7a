"""holdfast api."""

from __future__ import annotations

from dataclasses import replace

import click

from holdfast.cli import output
from holdfast.cli.worker import tasks_option


@click.command()
@click.option("--host", help="The address to listen on. Default: HOLDFAST_HOST.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 picks a free one. Default: HOLDFAST_PORT.")
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Number of server processes."
)
@tasks_option
@click.option("--with-parent", type=int, hidden=True, help="Stop when the process with this id, its parent, has ended.")
def api(host: str | None, port: int | None, processes: int, tasks: tuple[str, ...], with_parent: int | None) -> None:
    """Serve the API over HTTP.

    On loopback, tokens are optional; on any other address, the server starts only if there is a token.
    """
    from holdfast.domain.errors import ConfigurationError
    from holdfast.runtime.settings import load

    settings = load()
    try:
        from holdfast.http.server import serve
    except ImportError as error:
        raise ConfigurationError(
            f"the API needs the extra `server`: pip install 'holdfast[server]' ({error})"
        ) from error
    if with_parent is not None:
        from holdfast.processes.family import stop_with_parent

        stop_with_parent(with_parent)
    given = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    serve(
        replace(settings, tasks=(*settings.tasks, *tasks), **given),  # type: ignore[arg-type]
        processes=processes,
        # With JSON logs, an event reports the address instead.
        started=None if settings.log_format == "json" else lambda url: output.note(f"the API listens on {url}"),
    )
