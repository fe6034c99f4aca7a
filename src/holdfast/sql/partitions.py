"""Partitions: one set of tables per month of runs, made ahead of time and dropped when their time is over."""

from __future__ import annotations

from datetime import timedelta

from holdfast.sql.statement import Statement, count, each


def make(ahead: timedelta) -> Statement[int]:
    return Statement("select holdfast.make_partitions(holdfast.now() + %(ahead)s::interval)", {"ahead": ahead}, count)


def drop(older_than: timedelta) -> Statement[list[str]]:
    """Drop the months that ended longer ago than this; tells which."""
    return Statement(
        "select holdfast.drop_partitions(holdfast.now() - %(older_than)s::interval)",
        {"older_than": older_than},
        each(lambda row: str(row[0])),
    )


def strays(older_than: timedelta, limit: int) -> Statement[int]:
    """Delete ended runs whose ids lie outside every month, which only a clock that is far off makes."""
    return Statement(
        """
        with gone as (
            delete from holdfast.runs_default where ctid = any(array(
                select runs.ctid from holdfast.runs_default as runs
                where runs.created_at < holdfast.now() - %(older_than)s::interval
                  and not exists (select from holdfast.ready where ready.run_id = runs.id)
                  and not exists (select from holdfast.waiting where waiting.run_id = runs.id)
                  and not exists (select from holdfast.leases where leases.run_id = runs.id)
                  and not exists (select from holdfast.idempotency_keys as keys where keys.run_id = runs.id)
                limit %(limit)s))
            returning id
        ), attempts as (delete from holdfast.attempts_default using gone where run_id = gone.id),
           events as (delete from holdfast.events_default using gone where run_id = gone.id),
           logs as (delete from holdfast.logs_default using gone where run_id = gone.id),
           steps as (delete from holdfast.steps_default using gone where run_id = gone.id)
        select count(*) from gone
        """,
        {"older_than": older_than, "limit": limit},
        count,
    )
