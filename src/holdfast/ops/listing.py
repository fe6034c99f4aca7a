"""Listing runs, newest first and in bounded time."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.domain.records import Page
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.sql import listings, runs
from holdfast.sql.listings import LONG, SHORT, Filters, WalkStep
from holdfast.sql.runs import EVERYTHING
from holdfast.sql.statement import Op, Statement

# The maximum number of rows that are examined for one page.
AT_MOST = 16_000


def list_runs(
    *,
    status: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    tag: str | None = None,
    job_id: str | None = None,
    before: str = EVERYTHING,
    limit: int = 50,
) -> Op[Page[RunRecord]]:
    """Return runs with ids below `before` that match every filter, newest first.

    The page may be short, or empty, if few of the examined rows match; `next_cursor` then says where to continue.
    """
    filters = Filters(status, task, queue, tag, job_id, before)
    if job_id is not None:
        # The ids of a job's runs contain the job's milliseconds, so one range of the primary key holds them all.
        first, last = job_id[:13] + listings.OLDEST[13:], job_id[:13] + EVERYTHING[13:]
        filters = filters._replace(floor=first, before=min(before, last))
    ids, reached = yield from _find(filters, limit + 1)
    # Between the two statements a run may have left the requested status.
    read = yield from runs.read_many(ids[:limit])
    listed = (run for run in read if status in (None, run.status))
    return Page(listed, ids[limit - 1] if len(ids) > limit else reached)


def _find(filters: Filters, wanted: int) -> Op[tuple[list[str], str | None]]:
    """Return ids of matching runs, and the id from which to continue; None if these are all."""
    found, reached, rows = yield from _advance(filters, wanted)
    if reached is None or len(found) >= wanted:
        return found, reached
    for read in _small_sets(filters, wanted):
        ids = yield from read
        if ids is not None:
            return ids, None
    while reached is not None and len(found) < wanted and rows < AT_MOST:
        more, reached, looked = yield from _advance(filters._replace(before=reached), wanted - len(found), long=True)
        found += more
        rows += looked
    return found, reached


def _walks(filters: Filters) -> list[listings.Walk]:
    """Return the indexes that can be walked for these filters."""
    found: list[listings.Walk] = []
    if filters.queue is not None:
        found.append("queue")
    if filters.task is not None:
        found.append("task")
    if filters.status is not None:
        found.append(Status(filters.status).value)
    return found or ["runs"]


def _small_sets(filters: Filters, wanted: int) -> Iterator[Statement[list[str] | None]]:
    """Return the sets that may be read completely if they are small."""
    if filters.tag is not None:
        yield listings.tagged(filters, wanted)
    if filters.status == Status.PENDING and filters.queue is not None:
        yield listings.queued(filters, wanted)


def _advance(filters: Filters, wanted: int, *, long: bool = False) -> Op[tuple[list[str], str | None, int]]:
    """Read one step of each index. The one that came furthest has seen every match down to its position."""
    best: tuple[list[str], str | None] | None = None
    rows = 0
    for name in _walks(filters):
        look: WalkStep = yield from listings.walk(name, filters, wanted, long=long)
        rows += look.rows
        if len(look.ids) >= wanted:
            return look.ids, look.ids[-1], rows
        if look.rows < (LONG if long else SHORT) or (look.reached or "") < filters.floor:
            return look.ids, None, rows
        if best is None or best[1] is None or (look.reached or "") < best[1]:
            best = look.ids, look.reached
    return (*(best or ([], None)), rows)
