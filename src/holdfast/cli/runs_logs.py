"""holdfast runs logs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import output, prefixes
from holdfast.cli.session import json_option, open_client

if TYPE_CHECKING:
    from holdfast.domain.records import LogRecord
    from holdfast.verbs.facades import Calls

LOOK_EVERY = 0.3
COLOURS = {"debug": "blue", "warning": "yellow", "error": "red"}


@click.command()
@click.argument("run_id")
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the run has ended.")
@json_option
def logs(run_id: str, follow: bool, as_json: bool) -> None:
    """Print the log of a run. With --follow and --json, it is one JSON document per line."""
    with open_client() as client:
        lines = _lines(client, prefixes.run_id(client, run_id), follow)
        if as_json and not follow:
            output.document({"items": [_document(line) for line in lines]})
            return
        for line in lines:
            output.line(_document(line)) if as_json else output.data(_shown(line))
            output.flush()


def _lines(client: Calls, run_id: str, follow: bool) -> Iterator[LogRecord]:
    """The lines so far, and those to come until the run has ended."""
    after = 0
    while True:
        # The run is read first: if it had ended by then, its log is complete.
        run = client.get(run_id)
        found = client.logs(run_id, after)
        yield from found
        if found:
            after = found[-1].seq
        elif run.status.final or not follow:
            return
        else:
            time.sleep(LOOK_EVERY)


def _document(line: LogRecord) -> dict[str, Any]:
    from holdfast.domain.times import written

    return line._asdict() | {"at": written(line.at)}


def _shown(line: LogRecord) -> str:
    level = output.styled(f"{line.level:<7}", fg=COLOURS.get(line.level))
    return f"{output.when(line.at)}  {line.attempt}  {level}  {output.visible(line.message)}"
