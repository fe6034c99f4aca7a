"""Runs that wait for a time or for dependencies, in a table that claims do not read."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.sql.statement import Statement, count


def promote(limit: int) -> Statement[tuple[int, float | None]]:
    """Move due runs to ready. Return their number, and the seconds until the next run is due."""
    return Statement(
        """
        with due as (
            delete from holdfast.waiting where ctid = any(array(
                select ctid from holdfast.waiting
                where blockers = 0 and due_at <= holdfast.now()
                order by due_at limit %(limit)s for update skip locked))
            returning run_id, due_at, rank_at, number, excused, ord, queue, job_id, map_id, task
        ), moved as (
            insert into holdfast.ready (run_id, rank_at, number, excused, ord, queue, job_id, map_id, task)
            select run_id, coalesce(rank_at, due_at), number, excused, ord, queue, job_id, map_id, task from due
            returning run_id
        )
        select (select count(*) from moved),
               (select extract(epoch from holdfast.readable(min(due_at)) - holdfast.now())::float8 from holdfast.waiting
                where blockers = 0 and due_at > holdfast.now())
        """,
        {"limit": limit},
        lambda found: (found[0][0], found[0][1]),
    )


def postpone(run_id: str, until: datetime | timedelta) -> Statement[int]:
    """Make a ready or waiting run wait until this time. Return 1, or 0 if it is neither."""
    return Statement(
        """
        with given as (
            select %(run_id)s::uuid as run_id, coalesce(%(at)s::timestamptz, holdfast.now() + %(in)s::interval) as until
        ), queued as (
            delete from holdfast.ready using given where ready.run_id = given.run_id
            returning ready.run_id, until, rank_at, number, excused, ord, queue, job_id, map_id, task
        ), moved as (
            insert into holdfast.waiting (run_id, due_at, rank_at, number, excused, ord, queue, reason, job_id, map_id,
                                          task)
            select run_id, until, case when job_id is not null then rank_at end, number, excused, ord, queue,
                   'postponed', job_id, map_id, task
            from queued
            returning run_id
        ), changed as (
            update holdfast.waiting
            set due_at = until, reason = case when blockers = 0 then 'postponed' else reason end
            from given where waiting.run_id = given.run_id
            returning waiting.run_id
        )
        select (select count(*) from moved) + (select count(*) from changed)
        """,
        {
            "run_id": run_id,
            "at": None if isinstance(until, timedelta) else until,
            "in": until if isinstance(until, timedelta) else None,
        },
        count,
        together=True,
    )
