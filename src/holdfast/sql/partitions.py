"""Partitions: one set of tables per month of runs, created in advance and dropped after the retention period.

Results of pruned runs have to be removed from the result store as well. A run is recorded for that in the statement
that deletes it, or later, never earlier: so the result of an existing run is never removed, and an interrupted removal
is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from holdfast.sql.statement import Statement, count, each, nothing, plain_array


def isolation() -> Statement[str]:
    """Return the isolation level of the current transaction."""
    return Statement("select current_setting('transaction_isolation')", {}, lambda found: str(found[0][0]))


def make(ahead: timedelta = timedelta(days=62)) -> Statement[int]:
    """Create the tables of the coming months."""
    return Statement("select holdfast.make_partitions(holdfast.now() + %(ahead)s::interval)", {"ahead": ahead}, count)


def drop(older_than: timedelta) -> Statement[list[str]]:
    """Drop the oldest month that ended longer ago than this and has no live runs. Return its name."""
    return Statement(
        "select holdfast.drop_partitions(holdfast.now() - %(older_than)s::interval)",
        {"older_than": older_than},
        each(lambda row: str(row[0])),
    )


class Month(NamedTuple):
    """A month of runs by its name, `2026_01`, and about how many runs it has."""

    name: str
    runs: int


def expired(older_than: timedelta) -> Statement[list[Month]]:
    """Return the months that `drop` would drop, without dropping them."""
    return Statement(
        """
        select right(relname, 7), greatest(reltuples, 0)::bigint
        from (select child.relname, child.reltuples,
                     to_date(right(child.relname, 7), 'YYYY_MM')::timestamp at time zone 'UTC' as month
              from pg_inherits join pg_class as child on child.oid = inhrelid
              where inhparent = 'holdfast.runs'::regclass and child.relname ~ '_[0-9]{4}_[0-9]{2}$') as parts
        where month + interval '1 month' <= holdfast.now() - %(older_than)s::interval
          and not holdfast.is_live(month)
          and not holdfast.is_awaited(holdfast.id_floor(month), holdfast.id_floor(month + interval '1 month'))
        order by 1
        """,
        {"older_than": older_than},
        each(Month._make),
    )


def sweep(limit: int) -> Statement[bool]:
    """Remove a bounded number of rows that pruned runs left in other tables. Return whether there are more."""
    return Statement("select holdfast.sweep_pruned(%(limit)s)", {"limit": limit}, lambda found: bool(found[0][0]))


def strays(older_than: timedelta, limit: int) -> Statement[int]:
    """Delete ended runs whose ids belong to no month, which happens only if a client's clock is far off."""
    return Statement(
        """
        with gone as (
            delete from holdfast.runs_default where ctid = any(array(
                select runs.ctid from holdfast.runs_default as runs
                where runs.created_at < holdfast.now() - %(older_than)s::interval
                  and not exists (select from holdfast.ready where ready.run_id = runs.id)
                  and not exists (select from holdfast.waiting where waiting.run_id = runs.id)
                  and not exists (select from holdfast.leases where leases.run_id = runs.id)
                  and not exists (select from holdfast.idempotency_keys as keys
                                  where keys.run_id = runs.id and keys.expires_at > holdfast.now())
                  and not exists (select from holdfast.jobs where jobs.id = runs.job_id and jobs.finished_at is null)
                  and not exists (select from holdfast.dependencies
                                  join holdfast.waiting on waiting.run_id = dependencies.run_id
                                  where dependencies.on_id = any(array[runs.id, runs.map_id]))
                limit %(limit)s))
            returning id, job_id, map_id
        ), ended as (
            delete from holdfast.attempts_default using gone where run_id = gone.id returning run_id, result_ref
        ), discarded as (
            insert into holdfast.discarded_results (run_id)
            select distinct run_id from ended where result_ref is not null on conflict do nothing
        ), left_over as (
            insert into holdfast.pruned_ranges (low, high)
            select distinct holdfast.job_floor(id), holdfast.job_ceiling(id) from gone
            on conflict (low) do update set edges_to = null, swept_at = null
        ), events as (delete from holdfast.events_default using gone where run_id = gone.id),
           logs as (delete from holdfast.logs_default using gone where run_id = gone.id),
           steps as (delete from holdfast.steps_default using gone where run_id in (gone.id, gone.job_id, gone.map_id))
        select count(*) from gone
        """,
        {"older_than": older_than, "limit": limit},
        count,
    )


def results_to_remove(limit: int = 100) -> Statement[list[str]]:
    """Return deleted runs whose results may still be stored, starting with those that have not been tried yet."""
    return Statement(
        """
        select discarded_results.run_id::text from holdfast.discarded_results
        where not exists (select from holdfast.runs where runs.id = discarded_results.run_id)
        order by tried_at nulls first, discarded_results.run_id limit %(limit)s
        """,
        {"limit": limit},
        each(lambda row: str(row[0])),
    )


def results_removed(run_ids: Sequence[str]) -> Statement[None]:
    """Record that the results of these runs have been removed."""
    return Statement(
        "delete from holdfast.discarded_results where run_id = any(%(run_ids)s::uuid[])",
        {"run_ids": plain_array(run_ids)},
        nothing,
    )


def results_not_removed(run_ids: Sequence[str]) -> Statement[None]:
    """Record that the results of these runs could not be removed, so that others are tried first."""
    return Statement(
        "update holdfast.discarded_results set tried_at = holdfast.now() where run_id = any(%(run_ids)s::uuid[])",
        {"run_ids": plain_array(run_ids)},
        nothing,
    )
