"""Exact counters: written in the transaction they count, and summed up by upkeep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.sql.statement import Statement, count, id_array, plain_array, text_array

# The upper bounds of the duration buckets, in seconds; the last bucket has none.
BOUNDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)

Tally = tuple[str, str, int]


def add(tallies: Mapping[Tally, tuple[int, float]], ended: Sequence[str]) -> Statement[bool]:
    """Add amounts and seconds by (task, kind, bucket), and return whether any run depends on those that `ended`.

    They are one statement only to save a round trip: both follow the end of runs, in the same transaction.
    """
    keys = list(tallies)
    return Statement(
        """
        with added as (
            insert into holdfast.tallies (task, kind, bucket, amount, seconds)
            select * from unnest(%(tasks)s::text[], %(kinds)s::text[], %(buckets)s::smallint[], %(amounts)s::bigint[],
                                 %(seconds)s::float8[])
        )
        select exists (select from holdfast.dependencies where on_id = any(%(ended)s::uuid[]))
        """,
        {
            "ended": id_array(ended),
            "tasks": text_array([key[0] for key in keys]),
            "kinds": text_array([key[1] for key in keys]),
            "buckets": plain_array([key[2] for key in keys]),
            "amounts": plain_array([tallies[key][0] for key in keys]),
            "seconds": plain_array([tallies[key][1] for key in keys]),
        },
        lambda found: bool(found[0][0]),
    )


def fold(limit: int) -> Statement[int]:
    """Add tallies to the summary and delete them, in one statement and in one worker at a time.

    An advisory lock for all of them writes no WAL; locking each row would write as much as deleting it. Only rows that
    another transaction has locked at some point are locked first, in order to skip those that it still holds.
    """
    return Statement(
        """
        with mine as materialized (
            select where pg_try_advisory_xact_lock(hashtextextended('holdfast.fold', 0))
        ), gone as (
            delete from holdfast.tallies where ctid = any(
                array(select ctid from holdfast.tallies where xmax = '0' and exists (select from mine)
                      limit %(limit)s)
                || array(select ctid from holdfast.tallies where xmax <> '0' and exists (select from mine)
                         limit %(limit)s for update skip locked))
            returning task, kind, bucket, amount, seconds
        ), summed as (
            select task, kind, bucket, sum(amount) as amount, sum(seconds) as seconds from gone
            group by task, kind, bucket order by task, kind, bucket
        ), folded as (
            insert into holdfast.summary (task, kind, bucket, amount, seconds, updated_at)
            select task, kind, bucket, amount, seconds, holdfast.now() from summed
            on conflict (task, kind, bucket) do update
            set amount = summary.amount + excluded.amount, seconds = summary.seconds + excluded.seconds,
                updated_at = excluded.updated_at
        )
        select count(*) from gone
        """,
        {"limit": limit},
        count,
    )


def totals() -> Statement[dict[Tally, tuple[int, float]]]:
    """Return every counter, including tallies not yet moved, and runs that are counted when they leave the queue."""
    return Statement(
        """
        select task, kind, bucket, sum(amount), sum(seconds) from (
            select task, kind, bucket, amount, seconds from holdfast.summary
            union all
            select task, kind, bucket, amount, seconds from holdfast.tallies
            union all
            select task, 'created', 0, count(*), 0 from holdfast.ready where not counted group by task) as every
        group by task, kind, bucket
        """,
        {},
        lambda found: {row[:3]: (int(row[3]), float(row[4])) for row in found},
    )
