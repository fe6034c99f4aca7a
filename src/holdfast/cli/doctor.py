"""holdfast doctor and holdfast config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli import exits, output
from holdfast.cli.output import Column
from holdfast.cli.session import json_option

if TYPE_CHECKING:
    from holdfast.doctor import Finding


@click.command()
@click.option(
    "--for",
    "purpose",
    type=click.Choice(("reader", "client", "api", "worker")),
    default="worker",
    show_default=True,
    help="Purpose of the database role, as in `holdfast db grants`.",
)
@json_option
def doctor(purpose: str, as_json: bool) -> int:
    """Check the settings, the machine, the database, the queues and the workers, and report how to fix problems."""
    from holdfast.doctor import State, examine

    found = []
    for finding in examine(purpose):
        found.append(finding)
        if not as_json:
            _show(finding)
    failed = sum(finding.state is State.FAIL for finding in found)
    warned = sum(finding.state is State.WARN for finding in found)
    if as_json:
        output.document({"healthy": not failed, "items": [finding._asdict() for finding in found]})
    elif failed or warned:
        output.note(f"{failed} failed, {warned} warning{'s' * (warned != 1)}")
    else:
        output.note("no problems found")
    return exits.ERROR if failed else exits.OK


def _show(finding: Finding) -> None:
    state = str(finding.state)
    mark = output.styled(f"{state:<4}", fg=output.COLOURS.get(state))
    output.data(f"{mark}  {finding.name:<15}  {output.visible(finding.detail)}")
    if finding.fix:
        output.data(
            f"{'':<6}{'':<15}  → {output.visible(finding.fix)}" if output.is_unicode() else f"{'':<23}-> {finding.fix}"
        )


@click.group()
def config() -> None:
    """Show every setting and where it came from."""


SETTINGS: list[Column[tuple[str, str, str]]] = [
    Column("SETTING", lambda setting: setting[0]),
    Column("VALUE", lambda setting: setting[1], wide=True),
    Column("FROM", lambda setting: setting[2], wide=True),
]


@config.command()
@json_option
def show(as_json: bool) -> None:
    """Print each setting, its value and its origin; secrets are masked."""
    from holdfast.runtime.settings import load

    names = ("name", "value", "from")
    output.listing(SETTINGS, load().shown(), lambda setting: dict(zip(names, setting, strict=True)), as_json)
