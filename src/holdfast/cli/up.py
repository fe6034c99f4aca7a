"""holdfast up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli import output
from holdfast.cli.session import command_name
from holdfast.cli.worker import EXECUTORS, names, tasks_option

if TYPE_CHECKING:
    from holdfast.runtime.settings import Settings

REQUEST = '{"model": "mock", "parameters": {"seconds": 2}}'


@click.command()
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="Number of workers.")
@click.option(
    "--slots", type=click.IntRange(1, 10_000), help="Number of concurrent runs per worker. Default: one per processor."
)
@click.option("--queues", metavar="A,B", type=names, help="Serve only these queues. Default: every queue.")
@click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    default="process",
    show_default=True,
    help="Where runs are executed. Without HOLDFAST_RAY_ADDRESS, a Ray cluster is started for ray_core and ray_job.",
)
@tasks_option
@click.option("--no-api", is_flag=True, help="Do not start the API.")
def up(
    workers: int, slots: int | None, queues: tuple[str, ...] | None, executor: str, tasks: tuple[str, ...], no_api: bool
) -> None:
    """Start the API and workers and run until Ctrl-C. Processes that crash are restarted."""
    from holdfast.processes.supervise import Program, keep_running
    from holdfast.runtime.runtime import Runtime
    from holdfast.runtime.settings import load, masked

    modules = ("--tasks", ",".join(tasks)) if tasks else ()
    arguments = ["--executor", executor, *(["--slots", str(slots)] if slots else [])]
    arguments += ["--queues", ",".join(queues)] if queues else []
    settings = load()
    settings = replace(settings, tasks=(*settings.tasks, *tasks))
    own_ray = executor.startswith("ray") and not settings.ray_address
    with Runtime(settings, lasting=True) as runtime, _ray(settings, runtime.database_url, wanted=own_ray):
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
        output.note(f"try       {command_name()} submit mock -p seconds=2 --wait")
        if url:
            output.note(f"          curl -s {url}/runs -H 'Content-Type: application/json' -d '{REQUEST}'")
        output.note("Ctrl-C stops everything; unfinished runs continue at the next start")
        output.note("")
        keep_running(programs, grace=settings.grace_seconds + 15, tell=output.note)
    output.note("stopped")


@contextmanager
def _ray(settings: Settings, database_url: str, *, wanted: bool) -> Iterator[None]:
    """Start a Ray cluster on loopback whose nodes have these settings, and pass its address to the workers."""
    if not wanted:
        yield
        return
    from holdfast.assembly.worker import processors
    from holdfast.raycore.local import LocalRay, started

    artifacts = settings.artifacts
    environment = {
        **os.environ,
        "HOLDFAST_DATABASE_URL": database_url,
        "HOLDFAST_TASKS": ",".join(settings.tasks),
        "HOLDFAST_ARTIFACTS": artifacts if "://" in artifacts else str(Path(artifacts).absolute()),
    }
    output.note("Ray       starting, which takes 10 to 30 s")
    ray = started(lambda: LocalRay(environment, cpus=processors()))
    try:
        output.note(f"Ray       {ray.address}  (with a token, on this machine only)")
        os.environ.update(ray.settings)
        yield
    finally:
        ray.close()


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
