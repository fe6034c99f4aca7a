"""Parsing of values on the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import click

from holdfast.domain.times import FURTHEST, is_start

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
SHOWN = 60
_DURATION = re.compile(r"\+?(\d+(?:\.\d+)?)\s*(s|m|min|h|d|)")


class InputFile(click.File):
    """A file to read, or `-` for stdin, which has to be open."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and sys.stdin is None:
            self.fail("stdin is closed; name a file, or send the content through a pipe", param, ctx)
        return super().convert(value, param, ctx)


def seconds(text: str) -> float | None:
    """The seconds of `90`, `1.5h`, `10m`, `2d`; None if it is not a duration."""
    found = _DURATION.fullmatch(text.strip())
    return float(found[1]) * _UNITS[found[2]] if found else None


def duration(text: str) -> float:
    """A duration."""
    found = seconds(text)
    if found is None:
        raise click.BadParameter(f"{_short(text)} is not a duration; write 90, 1.5s, 10m, 2h or 1d")
    return found


def moment(text: str) -> datetime | timedelta:
    """A time, or how long from now."""
    found = seconds(text)
    if found is not None:
        if found > FURTHEST.total_seconds():
            raise click.BadParameter(f"{_short(text)} is more than 100 years")
        return timedelta(seconds=found)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{_short(text)} is not a time; write 10m, or 2030-01-31T08:00:00Z") from None
    if at.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone; write {text}Z for UTC, or {text}+10:00")
    if not is_start(at):
        raise click.BadParameter(f"{_short(text)} is not between the years 1900 and 9998")
    return at


def dedupe(text: str) -> str | float:
    """`active`, `off`, or a window."""
    found = text if text in ("active", "off") else seconds(text)
    if not found:
        raise click.BadParameter(f"{_short(text)} is neither active, off, nor a duration such as 10m")
    return found


def parameters(pairs: Iterable[str], file: bytes | None) -> dict[str, Any]:
    """The parameters of a run: those of the file, overridden by the pairs."""
    found = _of_file(file)
    given: dict[str, Any] = {}
    for pair in pairs:
        name, value = _pair(pair)
        if name in given:
            raise click.UsageError(f"parameter {_short(name)} is given twice")
        given[name] = value
    return found | given


def _of_file(content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {}
    from holdfast.domain.strict_json import parse

    found = parse(content)
    if not isinstance(found, dict):
        raise click.UsageError("the file of parameters does not contain a JSON object")
    return found


def _pair(pair: str) -> tuple[str, Any]:
    """`key=value` is JSON if it parses and text if not; `key:=json` must be JSON."""
    from holdfast.domain.errors import NotCanonical
    from holdfast.domain.strict_json import parse

    name, equals, text = pair.partition("=")
    exact = name.endswith(":")
    name = name.removesuffix(":")
    if not equals or not name:
        raise click.UsageError(f"-p {_short(pair)} must have the form key=value")
    try:
        return name, parse(text)
    except NotCanonical as error:
        if exact:
            raise click.UsageError(f"-p {_short(pair)}: the value after := must be JSON; {error}") from error
        return name, text


def _short(text: str) -> str:
    """A value as error messages show it: shortened if necessary."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
