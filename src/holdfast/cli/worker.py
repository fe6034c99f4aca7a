"""holdfast worker and holdfast sweep."""

from __future__ import annotations

from typing import Any, get_args

import click

from holdfast.domain.tasks import ExecutorName

EXECUTORS = get_args(ExecutorName)


def names(text: str | None) -> tuple[str, ...] | None:
    """`a,b` as names; None if the option was not given."""
    if text is None:
        return None
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise click.BadParameter("name at least one queue, or omit the option to serve all")
    return found


def tasks_option(command: Any) -> Any:
    """The option that names modules with tasks, in addition to those of HOLDFAST_TASKS."""
    about = "A module that registers tasks. May be repeated."
    return click.option("--tasks", metavar="MODULE", multiple=True, callback=_modules, help=about)(command)


def with_parent_option(command: Any) -> Any:
    """Add the hidden option that other Holdfast processes pass to the processes that they start."""
    about = "Stop when the process with this id, its parent, has ended."
    option = click.option("--with-parent", type=int, hidden=True, expose_value=False, callback=_stop_with, help=about)
    return option(command)


def _stop_with(context: click.Context, parameter: click.Parameter, parent: int | None) -> None:
    if parent is not None:
        from holdfast.processes.family import stop_with_parent

        stop_with_parent(parent)


def _modules(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(module for some in given for module in names(some) or ())


@click.command()
@click.option(
    "--queues", metavar="A,B", type=names, help="Serve only these queues. Default: every queue, including new ones."
)
@click.option("--slots", type=click.IntRange(1, 10_000), help="Number of concurrent runs. Default: one per processor.")
@click.option(
    "--executor", type=click.Choice(EXECUTORS), default="process", show_default=True, help="Where runs are executed."
)
@click.option("--cluster", help="The Ray cluster, by its name in HOLDFAST_RAY_CLUSTERS. Default: HOLDFAST_RAY_ADDRESS.")
@tasks_option
@click.option("--name", default="", help="A name to display. Default: host and process id.")
@click.option("--until-empty", is_flag=True, help="Stop when there is nothing left to do.")
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    help="Serve /livez, /readyz and /metrics on this port; 0 picks a free one. Default: HOLDFAST_WORKER_PORT.",
)
@with_parent_option
def worker(
    queues: tuple[str, ...] | None,
    slots: int | None,
    executor: str,
    cluster: str | None,
    tasks: tuple[str, ...],
    name: str,
    until_empty: bool,
    health_port: int | None,
) -> None:
    """Claim runs from queues and execute them.

    On SIGTERM or Ctrl-C, the worker lets its runs finish within the grace period and hands back the rest; a second
    signal stops it immediately.
    """
    from holdfast.assembly.worker import WorkerRequest, run_worker
    from holdfast.runtime.settings import load

    run_worker(load(), WorkerRequest(queues, slots, executor, tasks, name, until_empty, health_port, cluster=cluster))


@click.command()
def sweep() -> None:
    """Do the workers' upkeep without executing runs.

    Rescue runs of dead workers, send messages to RQ, publish events, prune. Every worker does this too: use this
    command if only `rq worker` executes runs.
    """
    from holdfast.assembly.worker import run_sweep
    from holdfast.runtime.settings import load

    run_sweep(load())
