"""holdfast runs: the commands that wait for runs and change them, the latter made from the verbs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from holdfast.cli import exits, output, values
from holdfast.cli.session import for_each, json_option, open_client
from holdfast.documents.runs import run_document
from holdfast.verbs import outcomes
from holdfast.verbs.facades import Calls
from holdfast.verbs.verb import Command, Verb, declared


@click.command()
@click.argument("run_id")
@click.option(
    "--timeout", metavar="DURATION", type=values.duration, help="How long to wait. The run continues after that."
)
@json_option
def wait(run_id: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a run has ended. Progress goes to stderr, the run to stdout; the exit code says how it ended."""
    from holdfast.cli.watching import follow

    with open_client() as client:
        run = follow(client, client.get(values.run_id(client, run_id)), timeout)
    output.document(run.as_dict()) if as_json else output.data(f"{run.id}  {run.status}")
    if run.status == "FAILED":
        output.hint(where_it_failed(run.id))
    return exits.BY_STATUS[run.status]


def where_it_failed(run_id: str) -> str:
    """How to see the traceback of a failed run."""
    return f"holdfast runs attempts {run_id} --traceback shows where the task failed"


def command_of(verb: Verb[..., Any], shown_as: Command) -> click.Command:
    """The command of a verb that changes runs: it takes several ids, and prints the result of each call."""

    def callback(run_ids: tuple[str, ...], as_json: bool, **options: Any) -> int:
        given = {name: value for name, value in options.items() if value is not None}

        def call(client: Calls, run_id: str) -> None:
            record = client.execute(verb, (values.run_id(client, run_id),), given)
            shown = f"{record.id}  {shown_as.says(record)}"
            output.document(run_document(record)) if as_json else output.data(shown)

        return for_each(run_ids, call)

    command = click.command(verb.name, help=shown_as.help)(json_option(callback))
    kinds = {"text": click.STRING, "time": values.moment}
    options = [
        click.Option([f"--{one.name}"], help=one.help, type=kinds[one.kind], metavar=one.kind.upper())
        for one in shown_as.options
    ]
    command.params[:0] = [click.Argument(["run_ids"], nargs=-1, required=True, metavar="RUN_ID..."), *options]
    return command


def commands() -> Iterator[click.Command]:
    """Add the command `wait`, and those of the verbs that declare one."""
    yield wait
    for verb in declared(outcomes):
        if verb.command is not None:
            yield command_of(verb, verb.command)
