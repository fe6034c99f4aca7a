"""holdfast config."""

from __future__ import annotations

import click

from holdfast.cli import output
from holdfast.cli.output import Column
from holdfast.cli.session import json_option


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
