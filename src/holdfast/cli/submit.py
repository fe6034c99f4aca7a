"""holdfast submit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, BinaryIO

import click

from holdfast.cli import exits, output, values
from holdfast.cli.session import json_option, open_client


@click.command()
@click.argument("task")
@click.option(
    "-p",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="A parameter. A value that is not valid JSON is text; KEY:=JSON requires JSON. May be repeated.",
)
@click.option(
    "-f",
    "file",
    type=values.InputFile("rb"),
    help="A file with a JSON object of parameters, or - for stdin; -p overrides its values.",
)
@click.option("--key", help="An idempotency key: submitting the same key again returns the same run.")
@click.option("--queue", help="The queue. Default: the task's queue.")
@click.option("--priority", type=int, help="From -100 to 100; higher priorities start first.")
@click.option(
    "--run-after", metavar="TIME", type=values.moment, help="The earliest start: 10m, 2h, or 2030-01-31T08:00:00Z."
)
@click.option(
    "--dedupe",
    metavar="RULE",
    type=values.dedupe,
    help="Whether to return an existing run with the same payload: active, off, or a maximum age such as 10m.",
)
@click.option("--concurrency-key", help="Stored with the run; it does not limit anything yet.")
@click.option("--tag", "tags", multiple=True, help="A tag. May be repeated.")
@click.option("--wait", is_flag=True, help="Wait until the run ends, with progress on stderr and the result on stdout.")
@click.option(
    "--timeout", metavar="DURATION", type=values.duration, help="How long to wait. The run continues after that."
)
@json_option
def submit(
    task: str,
    pairs: tuple[str, ...],
    file: BinaryIO | None,
    run_after: datetime | timedelta | None,
    tags: tuple[str, ...],
    wait: bool,
    timeout: float | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Submit a run of TASK and print its id or, with --wait, its result.

    \b
    holdfast submit mock -p seconds=2 --wait
    holdfast submit baseline_forecast_v1 -f parameters.json --key report-42
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout requires --wait")
    parameters = values.parameters(pairs, file.read() if file else None)
    given = {name: value for name, value in options.items() if value is not None}
    with open_client() as client:
        run = client.submit(task, parameters, run_after=run_after, tags=tags or None, **given)
        if not run.created:
            output.note(f"found run {run.id} ({run.status}), which an earlier request created")
        if not wait:
            output.document(run.as_dict()) if as_json else output.data(run.id)
            output.hint(f"to follow it: holdfast runs wait {run.id}")
            return exits.OK
        return _wait(client, run, timeout)


def _wait(client: Any, run: Any, timeout: float | None) -> int:
    from holdfast.cli.steering import where_it_failed
    from holdfast.cli.watching import follow

    output.note(f"run {run.id}")
    try:
        run = follow(client, run, timeout)
    except KeyboardInterrupt:
        output.note(
            f"the run continues; to follow it: holdfast runs wait {run.id}, to stop it: holdfast runs cancel {run.id}"
        )
        raise
    if run.status == "FAILED":
        output.hint(where_it_failed(run.id))
    output.document(client.result(run))
    return exits.OK
