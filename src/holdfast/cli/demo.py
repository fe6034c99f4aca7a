"""holdfast demo."""

from __future__ import annotations

import time
from pathlib import Path

import click

from holdfast.cli import exits, output
from holdfast.cli.narration import TerminalNarrator


@click.command()
@click.option(
    "--executor",
    type=click.Choice(["process", "ray_core"]),
    default="process",
    show_default=True,
    help="Where runs are executed. With ray_core, the demo starts its own Ray cluster.",
)
def demo(executor: str) -> int:
    """Demonstrate the main features on a temporary Postgres.

    The scenes are a run that succeeds, one that is retried, a job that fans out, and a worker that is killed.

    Everything happens in a temporary directory under .holdfast, which is removed at the end. The exit code is 0 only
    if every check succeeded.
    """
    from holdfast.demo import play

    began = time.monotonic()
    narrator = TerminalNarrator()
    narrator.opening()
    kept = play(narrator, Path.cwd(), executor)
    narrator.closing(time.monotonic() - began)
    if not kept:
        output.error("some checks failed; see above")
    return exits.OK if kept else exits.ERROR
