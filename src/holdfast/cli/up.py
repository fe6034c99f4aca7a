"""holdfast up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from holdfast.cli import output
from holdfast.cli.program import called
from holdfast.cli.worker import names, tasks_option

if TYPE_CHECKING:
    from holdfast.runtime.settings import Settings

REQUEST = '{"model": "mock", "parameters": {"seconds": 2}}'


@click.command()
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="Number of workers.")
@click.option(
    "--slots", type=click.IntRange(1, 10_000), help="Number of concurrent runs per worker. Default: one per processor."
)
@click.option("--queues", metavar="A,B", type=names, help="Serve only these queues. Default: every queue.")
@tasks_option
@click.option("--no-api", is_flag=True, help="Do not start the API.")
def up(workers: int, slots: int | None, queues: tuple[str, ...] | None, tasks: tuple[str, ...], no_api: bool) -> None:
    """Start the API and workers and run until Ctrl-C. Processes that crash are restarted."""
    from holdfast.processes.supervise import Program, keep_running
    from holdfast.runtime.runtime import Runtime
    from holdfast.runtime.settings import load, masked

    modules = ("--tasks", ",".join(tasks)) if tasks else ()
    arguments = ["--slots", str(slots)] if slots else []
    arguments += ["--queues", ",".join(queues)] if queues else []
    settings = load()
    settings = replace(settings, tasks=(*settings.tasks, *tasks))
    with Runtime(settings, lasting=True) as runtime:
        programs = [
            Program(f"worker {number}", ("worker", *arguments, *modules, *_health_port(settings, number)))
            for number in range(1, workers + 1)
        ]
        output.note(f"database  {masked(runtime.database_url)}" + ("" if settings.database_url else "  (embedded)"))
        output.note(f"workers   {workers}")
        url = None if no_api else _address(settings, runtime.database_url)
        if url:
            programs.append(Program("api", ("api", "--port", url.rpartition(":")[2], *modules)))
            output.note(f"API       {url}")
        output.note("")
        output.note(f"try       {called()} submit mock -p seconds=2 --wait")
        if url:
            output.note(f"          curl -s {url}/runs -H 'Content-Type: application/json' -d '{REQUEST}'")
        output.note("Ctrl-C stops everything; runs continue at the next start")
        output.note("")
        keep_running(programs, grace=settings.grace_seconds + 15, tell=output.note)
    output.note("stopped")


def _health_port(settings: Settings, number: int) -> tuple[str, ...]:
    """Return the port option of a worker: the configured port for the first, the following ports for the others."""
    port = settings.worker_port
    return ("--health-port", str(port and port + number - 1)) if port is not None else ()


def _address(settings: Settings, database_url: str) -> str | None:
    """The URL of the API, after checking that its port is free; None if it is not installed."""
    try:
        from holdfast.http.server import listen, require_token, url_of
    except ImportError:
        output.note("API       not installed: pip install 'holdfast[server]'")
        return None
    from holdfast.http.hosts import is_loopback

    if not is_loopback(settings.host):
        require_token(database_url, settings.host)
    with listen(settings.host, settings.port) as tried:
        return url_of(tried)
