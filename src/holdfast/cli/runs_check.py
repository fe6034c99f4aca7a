"""holdfast runs: comparing two runs, and checking that the record of a run is consistent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli import exits, output, prefixes
from holdfast.cli.output import Column
from holdfast.cli.session import json_option, open_client

if TYPE_CHECKING:
    from holdfast.client.comparing import Difference
    from holdfast.client.verifying import Check

DIFFERENCES: list[Column[Difference]] = [
    Column("WHERE", lambda one: one.pointer),
    Column("FIRST", lambda one: output.compact(one.a) if one.in_a else None, wide=True),
    Column("SECOND", lambda one: output.compact(one.b) if one.in_b else None, wide=True),
]

CHECKS: list[Column[Check]] = [
    Column("", lambda check: "ok" if check.holds else "fail"),
    Column("CHECK", lambda check: check.name),
    Column("FOUND", lambda check: check.detail),
]


@click.command()
@click.argument("first")
@click.argument("second")
@json_option
def diff(first: str, second: str, as_json: bool) -> None:
    """Show the differences between two runs.

    Compares the task, the parameters, the policies, and the results if both runs have one.
    """
    from holdfast.client.comparing import compare

    with open_client() as client:
        found = compare(client, prefixes.run_id(client, first), prefixes.run_id(client, second))
    if as_json:
        output.document({"items": [one.as_dict() for one in found]})
    elif found:
        output.table(DIFFERENCES, found)
    else:
        output.note("no difference")


@click.command()
@click.argument("run_id")
@json_option
def verify(run_id: str, as_json: bool) -> int:
    """Check that the record of a run is consistent.

    Checks the payload hash, the order of events and attempts, and the SHA-256 of the result.
    """
    from holdfast.client.verifying import verify as check_all

    with open_client() as client:
        found = check_all(client, prefixes.run_id(client, run_id))
    whole = all(check.holds for check in found)
    if as_json:
        output.document({"verified": whole, "items": [check._asdict() for check in found]})
    else:
        output.table(CHECKS, found)
    return exits.OK if whole else exits.ERROR


COMMANDS = (diff, verify)
