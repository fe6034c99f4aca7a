"""holdfast up."""

from __future__ import annotations

import click

from holdfast.cli import output
from holdfast.cli.worker import names


@click.command()
@click.option("--workers", type=click.IntRange(0, 64), default=1, show_default=True, help="How many workers.")
@click.option("--slots", type=click.IntRange(1, 10_000), help="Runs at once per worker; else one per processor.")
@click.option("--queues", metavar="A,B", type=names, help="Only these queues; else every queue.")
def up(workers: int, slots: int | None, queues: tuple[str, ...] | None) -> None:
    """Start everything here and stay until Ctrl-C. What crashes is started again."""
    from holdfast.client.surroundings import Surroundings
    from holdfast.settings import masked
    from holdfast.supervise import Program, keep_running

    arguments = ["--slots", str(slots)] if slots else []
    arguments += ["--queues", ",".join(queues)] if queues else []
    with Surroundings() as surroundings:
        settings = surroundings.settings
        where = masked(surroundings.database_url)
        output.note(f"database  {where}" + ("" if settings.database_url else "  (embedded)"))
        output.note(f"workers   {workers}")
        output.note("")
        output.note("try       holdfast submit mock -p seconds=2 --wait")
        output.note("          holdfast runs list")
        output.note("Ctrl-C stops everything; runs go on at the next start")
        output.note("")
        keep_running(
            [Program(f"worker {number}", ("worker", "--with-parent", *arguments)) for number in range(1, workers + 1)],
            grace=settings.grace_seconds + 15,
            tell=output.note,
        )
    output.note("stopped")
