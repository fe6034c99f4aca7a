"""holdfast sweep."""

from __future__ import annotations

import click


@click.command()
def sweep() -> None:
    """Do the workers' upkeep without executing runs.

    Rescue runs of dead workers, send messages to RQ, publish events, prune. Every worker does this too: use this
    command if only `rq worker` executes runs.
    """
    from holdfast.assembly.worker import run_sweep
    from holdfast.runtime.settings import load

    run_sweep(load())
