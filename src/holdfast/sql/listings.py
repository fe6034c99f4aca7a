"""Lists of runs, read by index and in bounded time.

Each statement examines a fixed number of rows of one index, newest first, and returns those that match every filter.
The index is that of a status, a queue or a task, or the primary key. If several filters have an index, each is read in
turn, and the next step continues from the furthest position reached. So no statement takes long, however large the
tables are.

Sets that may be small are read completely instead: the runs with a tag, the pending runs of a queue.
"""

from __future__ import annotations

from typing import Literal, LiteralString, NamedTuple

from holdfast.sql.runs import EVERYTHING
from holdfast.sql.statement import Rows, Statement

Walk = Literal["runs", "queue", "task", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
OLDEST = "00000000-0000-0000-0000-000000000000"


class Filters(NamedTuple):
    """Which runs to list: those that match every filter, with ids of at least `floor` and below `before`."""

    status: str | None = None
    task: str | None = None
    queue: str | None = None
    tag: str | None = None
    job_id: str | None = None
    before: str = EVERYTHING
    floor: str = OLDEST


class WalkStep(NamedTuple):
    """The matching ids, newest first; the number of rows examined, and the id of the last of them."""

    ids: list[str]
    rows: int
    reached: str | None


# The limits are literals: with a parameter, the planner would not expect few rows.
SHORT, LONG = 500, 8000
_SIZES: dict[bool, LiteralString] = {False: "limit 500", True: "limit 8000"}
# The maximum size of a small set. It is lower for queues because their pending runs are looked up one by one.
SMALL_TAG, SMALL_QUEUE = 25_000, 5_000

_COLUMNS: LiteralString = "select id, task, queue, tags, job_id from holdfast.runs where "

# Each walk uses one index. Range and order cover the whole index key: if the planner knew that the queue is a single
# value, it would drop it from the order and scan the primary key past a million other rows. The value is hidden in a
# subquery for the same reason: knowing it, the planner would expect few rows and sort them.
_RUN_WALKS: dict[str, LiteralString] = {
    "runs": _COLUMNS + "id < %(before)s::uuid order by id desc ",
    "queue": _COLUMNS
    + """
        (queue collate "C", id) < ((select %(queue)s::text), %(before)s::uuid)
        and (queue collate "C", id) >= ((select %(queue)s::text), %(floor)s::uuid)
        order by queue collate "C" desc, id desc """,
    "task": _COLUMNS
    + """
        (task collate "C", id) < ((select %(task)s::text), %(before)s::uuid)
        and (task collate "C", id) >= ((select %(task)s::text), %(floor)s::uuid)
        order by task collate "C" desc, id desc """,
}
_ENDED: LiteralString = "select run_id as id, outcome from holdfast.attempts where reopened_at is null and "
_UNSUCCESSFUL: LiteralString = (
    _ENDED
    + """
        outcome in ('FAILED', 'CANCELLED')
        and (outcome, run_id) < ((select %(status)s::text), %(before)s::uuid)
        and (outcome, run_id) >= ((select %(status)s::text), %(floor)s::uuid)
        order by outcome desc, run_id desc """
)
_STATUS_WALKS: dict[str, LiteralString] = {
    "PENDING": """
        select run_id as id from (
            select run_id from holdfast.ready union all select run_id from holdfast.waiting) as pending
        where run_id < %(before)s::uuid order by run_id desc """,
    "RUNNING": "select run_id as id from holdfast.leases where run_id < %(before)s::uuid order by run_id desc ",
    "SUCCEEDED": _ENDED + "outcome is not null and run_id < %(before)s::uuid order by run_id desc ",
    "FAILED": _UNSUCCESSFUL,
    "CANCELLED": _UNSUCCESSFUL,
}
# A subquery for each examined row: with a join or with exists, the planner might read the whole other table.
_OUTCOME: LiteralString = """
    and (select attempts.outcome from holdfast.attempts
         where attempts.run_id = seen.id and attempts.outcome is not null and attempts.reopened_at is null)"""
_HAS_STATUS: dict[str | None, LiteralString] = {
    None: "",
    "PENDING": """
    and coalesce((select true from holdfast.ready where ready.run_id = seen.id),
                 (select true from holdfast.waiting where waiting.run_id = seen.id))""",
    "RUNNING": "and (select true from holdfast.leases where leases.run_id = seen.id)",
    "SUCCEEDED": _OUTCOME + " = %(status)s",
    "FAILED": _OUTCOME + " = %(status)s",
    "CANCELLED": _OUTCOME + " = %(status)s",
}
_PASSES: LiteralString = """
    where seen.id < %(before)s::uuid and seen.id >= %(floor)s::uuid
      and coalesce(seen.task = %(task)s, %(task)s::text is null)
      and coalesce(seen.queue = %(queue)s, %(queue)s::text is null)
      and (%(tag)s::text is null or coalesce(%(tag)s = any(seen.tags), false))
      and (%(job_id)s::uuid is null or coalesce(seen.job_id = %(job_id)s::uuid, false))
"""
_LOOKED_UP: LiteralString = """
    select seen.id from looked cross join lateral (
        select id, task, queue, tags, job_id from holdfast.runs where runs.id = looked.id offset 0) as seen"""
_FIRST: LiteralString = " order by seen.id desc limit %(limit)s"
_ANSWER: LiteralString = """)
select array(select id::text from passed), (select count(*) from looked),
       (select id::text from looked order by id limit 1)
"""


def walk(name: Walk, filters: Filters, limit: int, *, long: bool = False) -> Statement[WalkStep]:
    """Examine the next rows of an index, newest first, and return the matching runs."""
    if name in _STATUS_WALKS:
        looked = _STATUS_WALKS[name] + _SIZES[long]
        passed = _LOOKED_UP + _PASSES + ("and looked.outcome = 'SUCCEEDED'" if name == "SUCCEEDED" else "")
    else:
        looked = _RUN_WALKS[name] + _SIZES[long]
        passed = "select seen.id from looked as seen" + _PASSES + _HAS_STATUS[filters.status]
    return Statement(
        "with looked as materialized (" + looked + "), passed as (" + passed + _FIRST + _ANSWER,
        {**filters._asdict(), "limit": limit},
        lambda found: WalkStep(*found[0]),
    )


def tagged(filters: Filters, limit: int) -> Statement[list[str] | None]:
    """Return the first matching runs among all runs with the tag, or None if there are too many of those."""
    return Statement(
        "with looked as materialized ("
        + _COLUMNS
        + "tags is not null and tags @> array[(select %(tag)s::text)] limit %(small)s + 1"
        + "), passed as (select seen.id from looked as seen"
        + _PASSES
        + "and (select count(*) from looked) <= %(small)s"
        + _HAS_STATUS[filters.status]
        + _FIRST
        + ") select array(select id::text from passed), (select count(*) from looked) <= %(small)s",
        {**filters._asdict(), "limit": limit, "small": SMALL_TAG},
        _if_complete,
    )


def queued(filters: Filters, limit: int) -> Statement[list[str] | None]:
    """Return the first matching runs among all pending runs of the queue, or None if there are too many of those."""
    return Statement(
        """
        with ready as materialized (
            select run_id as id from holdfast.ready
            where queue >= (select %(queue)s::text) and queue <= (select %(queue)s::text)
            order by queue, ord, rank_at, run_id limit %(small)s + 1
        ), waiting as materialized (
            select run_id as id, queue from holdfast.waiting limit %(small)s + 1
        ), small as materialized (
            select (select count(*) from ready) <= %(small)s and (select count(*) from waiting) <= %(small)s as is_so
        ), looked as materialized (
            select id from (select id from ready
                            union all select id from waiting where waiting.queue = %(queue)s) as pending
            where (select is_so from small)
        ), passed as ("""
        + _LOOKED_UP
        + _PASSES
        + _FIRST
        + ") select array(select id::text from passed), (select is_so from small)",
        {**filters._asdict(), "limit": limit, "small": SMALL_QUEUE},
        _if_complete,
    )


def _if_complete(found: Rows) -> list[str] | None:
    ids, complete = found[0]
    return list(ids) if complete else None
