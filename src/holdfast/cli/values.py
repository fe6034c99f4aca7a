"""Parsing of values on the command line: durations, times, parameters, and shortened ids.

A shortened id refers to the only run, job or worker whose id begins with it. Only the command line accepts these, for
people who copy what a narrow terminal shows. Lists are ordered by id, so ids with a common prefix are adjacent, and one
page of the list is enough to find them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from holdfast.domain.errors import BadInput, JobNotFound, NotCanonical, NotFound, RunNotFound
from holdfast.domain.strict_json import parse
from holdfast.domain.times import FURTHEST, is_start

if TYPE_CHECKING:
    from holdfast.verbs.facades import Calls

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
    found = {} if file is None else parse(file)
    if not isinstance(found, dict):
        raise click.UsageError("the parameters file does not contain a JSON object")
    given: dict[str, Any] = {}
    for pair in pairs:
        name, value = _pair(pair)
        if name in given:
            raise click.UsageError(f"parameter {_short(name)} is given twice")
        given[name] = value
    return found | given


def _pair(pair: str) -> tuple[str, Any]:
    """`key=value` is JSON if it parses and text if not; `key:=json` must be JSON."""
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


SHORTEST_PREFIX = 4
ID_LENGTH = 36
CANDIDATES_SHOWN = 5
_PREFIX = re.compile(rf"[0-9a-f]{{{SHORTEST_PREFIX},}}")


def run_id(client: Calls, given: str) -> str:
    """Return the id of the run that `given` refers to."""
    prefix = _prefix(given)
    if prefix is None:
        return given
    runs = _beginning(prefix, lambda cursor: client.list(cursor=cursor, limit=CANDIDATES_SHOWN + 1))
    return _only(((run.id, f"{run.id} ({run.model}, {run.status})") for run in runs), "run", given, RunNotFound)


def job_id(client: Calls, given: str) -> str:
    """Return the id of the job that `given` refers to."""
    prefix = _prefix(given)
    if prefix is None:
        return given
    from holdfast.jobs import Jobs

    jobs = _beginning(prefix, lambda cursor: Jobs(client).list_jobs(cursor=cursor, limit=CANDIDATES_SHOWN + 1))
    return _only(((job.id, f"{job.id} ({job.name}, {job.status})") for job in jobs), "job", given, JobNotFound)


def worker_id(client: Calls, given: str) -> str:
    """Return the id of the worker that `given` refers to."""
    prefix = _prefix(given)
    if prefix is None:
        return given
    workers = (worker for worker in client.workers() if worker.id.startswith(prefix))
    return _only(((worker.id, f"{worker.id} ({worker.name})") for worker in workers), "worker", given, NotFound)


def _prefix(given: str) -> str | None:
    """Return the prefix with its hyphens; None for a complete id, and for text that cannot be part of an id."""
    digits = given.lower().replace("-", "")
    if len(given) >= ID_LENGTH or not _PREFIX.fullmatch(digits) or len(digits) > 32:
        return None
    return "-".join(filter(None, (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])))


def _beginning(prefix: str, page: Callable[[str], Sequence[Any]]) -> Iterator[Any]:
    """Yield the items whose id has the prefix. Pages go down from a cursor; a page before the last one may be short."""
    cursor: str | None = prefix + "ffffffff-ffff-ffff-ffff-ffffffffffff"[len(prefix) :]
    while cursor is not None:
        found = page(cursor)
        under = [one for one in found if one.id.startswith(prefix)]
        yield from under
        cursor = found[-1].id if found and len(under) == len(found) else None


def _only(candidates: Iterable[tuple[str, str]], kind: str, given: str, missing: type[Exception]) -> str:
    """Return the id of the only candidate. Each candidate is an id and the text to show for it."""
    found = list(islice(candidates, CANDIDATES_SHOWN + 1))
    if not found:
        raise missing(f"no {kind} id begins with {given}; list them with: holdfast {kind}s list")
    if len(found) > 1:
        named = ", ".join(text for _, text in found[:CANDIDATES_SHOWN]) + (
            " and more" if len(found) > CANDIDATES_SHOWN else ""
        )
        raise BadInput(f"{given} matches more than one {kind}: {named}; use a longer prefix")
    return found[0][0]
