"""holdfast runs: the commands that wait for runs and steer them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli import exits, output, prefixes, values
from holdfast.cli.session import json_option, open_client

if TYPE_CHECKING:
    from holdfast.client import Client, Run


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
        run = follow(client, client.get(prefixes.run_id(client, run_id)), timeout)
    output.document(run.as_dict()) if as_json else output.data(f"{run.id}  {run.status}")
    if run.status == "FAILED":
        output.hint(where_it_failed(run.id))
    return exits.BY_STATUS[run.status]


def where_it_failed(run_id: str) -> str:
    """The way from a run that failed to the traceback."""
    return f"holdfast runs attempts {run_id} --traceback shows where in its code it failed"


@click.command()
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN_ID...")
@click.option("--reason", help="Stored with the run.")
@json_option
def cancel(run_ids: tuple[str, ...], reason: str | None, as_json: bool) -> int:
    """Cancel runs: pending runs end immediately, running ones are requested to stop."""

    def ask(client: Client, run_id: str) -> Run:
        return client.cancel(run_id, reason=reason)

    def say(run: Run) -> str:
        return "asked to stop" if run.status == "RUNNING" else str(run.status)

    return _each(run_ids, ask, say, as_json)


@click.command()
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN_ID...")
@json_option
def retry(run_ids: tuple[str, ...], as_json: bool) -> int:
    """Reopen runs that FAILED or were CANCELLED, with a full set of attempts."""

    def ask(client: Client, run_id: str) -> Run:
        return client.retry(run_id)

    return _each(run_ids, ask, lambda run: str(run.status), as_json)


def _each(run_ids: tuple[str, ...], ask: Callable[[Client, str], Run], say: Callable[[Run], str], as_json: bool) -> int:
    """Ask the same of each run. One that refuses does not keep the others; the first refusal is the exit code."""
    from holdfast.domain.errors import DatabaseUnreachable, HoldfastError

    code = exits.OK
    with open_client() as client:
        for run_id in run_ids:
            try:
                run = ask(client, prefixes.run_id(client, run_id))
            except DatabaseUnreachable:
                raise
            except HoldfastError as error:
                output.error(str(error))
                code = code or exits.code_of(error)
            else:
                output.document(run.as_dict()) if as_json else output.data(f"{run.id}  {say(run)}")
    return code


COMMANDS = (wait, cancel, retry)
