"""Shortened ids on the command line: a prefix refers to the only run, job or worker whose id begins with it.

Only the command line accepts prefixes, for people who copy what a narrow terminal shows. Lists are ordered by id, so
ids with a common prefix are adjacent, and one page of the list is enough to find them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import BadInput, JobNotFound, NotFound, RunNotFound

if TYPE_CHECKING:
    from holdfast.verbs.facades import Calls

LEAST = 4
LENGTH = 36
NAMED = 5
_PREFIX = re.compile(rf"[0-9a-f]{{{LEAST},}}")


def run_id(client: Calls, given: str) -> str:
    """Return the id of the run that `given` refers to."""
    prefix = _prefix(given)
    if prefix is None:
        return given
    runs = _beginning(prefix, lambda cursor: client.list(cursor=cursor, limit=NAMED + 1))
    return _only(((run.id, f"{run.id} ({run.model}, {run.status})") for run in runs), "run", given, RunNotFound)


def job_id(client: Calls, given: str) -> str:
    """Return the id of the job that `given` refers to."""
    prefix = _prefix(given)
    if prefix is None:
        return given
    from holdfast.jobs import Jobs

    jobs = _beginning(prefix, lambda cursor: Jobs(client).list_jobs(cursor=cursor, limit=NAMED + 1))
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
    if len(given) >= LENGTH or not _PREFIX.fullmatch(digits) or len(digits) > 32:
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
    found = list(islice(candidates, NAMED + 1))
    if not found:
        raise missing(f"no {kind} id begins with {given}; list them with: holdfast {kind}s list")
    if len(found) > 1:
        named = ", ".join(text for _, text in found[:NAMED]) + (" and more" if len(found) > NAMED else "")
        raise BadInput(f"{given} matches more than one {kind}: {named}; use a longer prefix")
    return found[0][0]
