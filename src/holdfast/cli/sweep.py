"""holdfast sweep."""

from __future__ import annotations

import click


@click.command()
def sweep() -> None:
    """Do the workers' upkeep without executing runs.

    Rescue runs whose worker is gone, ring for RQ's workers, publish events, prune. Every worker does this too: run it
    where all execution is done by `rq worker`.
    """
    from holdfast.assembly.worker import run_sweep
    from holdfast.runtime.settings import load

    run_sweep(load())
