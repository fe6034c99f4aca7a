"""Runs that wait for a time or for dependencies, in a table that claims do not read."""

from __future__ import annotations

from holdfast.sql.statement import Rows, Statement


def _moved_and_next(found: Rows) -> tuple[int, float | None]:
    moved, seconds = found[0]
    return moved, seconds


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
        _moved_and_next,
    )
