"""Stopping jobs: what is pending ends, what runs is asked to stop, and nothing starts any more."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.sql.statement import Statement, count, each, nothing


def stop(job_id: str, outcome: str, reason: str) -> Statement[None]:
    """Mark a job: nothing can be added to it from now on, and it ends as `outcome`.

    A job that was stopped before keeps its first reason, and one that has ended stays as it is. Read afterwards which
    it is: this statement may have waited for the ending, which it then does not see.
    """
    return Statement(
        """
        with marked as (
            update holdfast.jobs
            set cancel_requested_at = holdfast.now(), cancel_reason = %(reason)s, stop_outcome = %(outcome)s,
                held_until = null,
                finished_at = case when total = succeeded + failed + cancelled then holdfast.now() end,
                outcome = case when total = succeeded + failed + cancelled then %(outcome)s end
            where id = %(job_id)s::uuid and finished_at is null and cancel_requested_at is null
            returning outcome
        )
        insert into holdfast.tallies (task, kind, amount)
        select '', 'job ' || outcome, 1 from marked where outcome is not null
        """,
        {"job_id": job_id, "outcome": outcome, "reason": reason},
        nothing,
    )


# Somebody may have retried the job since it was found; then it is open again, and its runs are left alone. A job is
# reopened together with its runs, and only after the last of them has ended: while those that were found are locked, it
# stays as it was found.
_STOPPING = """
              and exists (select from holdfast.jobs where jobs.id = %(job_id)s::uuid
                          and jobs.cancel_requested_at is not null and jobs.finished_at is null)
"""


def hold(job_id: str, limit: int) -> Statement[list[str]]:
    """Up to `limit` pending runs of a job that is being stopped from each place, locked so that they can be ended."""
    return Statement(
        """
        with queued as (
            select run_id from holdfast.ready
            where run_id between holdfast.job_floor(%(job_id)s::uuid) and holdfast.job_ceiling(%(job_id)s::uuid)
              and job_id = %(job_id)s::uuid"""
        + _STOPPING
        + """
            order by run_id limit %(limit)s for update of ready
        ), idle as (
            select run_id from holdfast.waiting
            where run_id between holdfast.job_floor(%(job_id)s::uuid) and holdfast.job_ceiling(%(job_id)s::uuid)
              and job_id = %(job_id)s::uuid"""
        + _STOPPING
        + """
            order by run_id limit %(limit)s for update of waiting
        )
        select run_id::text from queued union all select run_id::text from idle
        """,
        {"job_id": job_id, "limit": limit},
        each(lambda row: str(row[0])),
        together=True,
    )


def ask_to_stop(job_id: str, reason: str) -> Statement[list[str]]:
    """Ask the running attempts of a job that is being stopped to stop, each once; tells whose they are."""
    return Statement(
        """
        with held as (
            select run_id from holdfast.leases
            where run_id between holdfast.job_floor(%(job_id)s::uuid) and holdfast.job_ceiling(%(job_id)s::uuid)
              and job_id = %(job_id)s::uuid and cancel_requested_at is null"""
        + _STOPPING
        + """
            order by run_id for update of leases
        ), asked as (
            update holdfast.leases set cancel_requested_at = holdfast.now(), cancel_reason = %(reason)s
            from held where leases.run_id = held.run_id
            returning leases.run_id, leases.number, leases.worker_id
        ), noted as (
            insert into holdfast.events (run_id, at, attempt, type, reason, data)
            select run_id, holdfast.now(), number, 'CANCEL_REQUESTED', %(reason)s, '{"stopped": true}' from asked
        )
        select distinct worker_id::text from asked
        """,
        {"job_id": job_id, "reason": reason},
        each(lambda row: str(row[0])),
        together=True,
    )


def startable(job_id: str) -> Statement[int]:
    """How many runs of a job that is being stopped could still start: pending ones, and running ones that nobody asked
    to stop.

    One look at one moment: a run is always in exactly one of these places.
    """
    return Statement(
        """
        with span as (
            select holdfast.job_floor(id) as low, holdfast.job_ceiling(id) as high from holdfast.jobs
            where id = %(job_id)s::uuid and jobs.cancel_requested_at is not null and finished_at is null
        )
        select (select count(*) from holdfast.ready, span where run_id between low and high
                  and job_id = %(job_id)s::uuid)
             + (select count(*) from holdfast.waiting, span where run_id between low and high
                  and job_id = %(job_id)s::uuid)
             + (select count(*) from holdfast.leases, span where run_id between low and high
                  and job_id = %(job_id)s::uuid and cancel_requested_at is null)
        """,
        {"job_id": job_id},
        count,
    )


# Jobs that were asked to stop and have runs that could still start, and jobs whose time is over.
TO_STOP = """
        from holdfast.jobs
        where finished_at is null and (
            (cancel_requested_at is null and deadline_at <= holdfast.now())
            or (cancel_requested_at is not null and (
                exists (select from holdfast.ready where run_id between holdfast.job_floor(jobs.id)
                        and holdfast.job_ceiling(jobs.id) and ready.job_id = jobs.id)
                or exists (select from holdfast.waiting where run_id between holdfast.job_floor(jobs.id)
                           and holdfast.job_ceiling(jobs.id) and waiting.job_id = jobs.id)
                or exists (select from holdfast.leases where run_id between holdfast.job_floor(jobs.id)
                           and holdfast.job_ceiling(jobs.id) and leases.job_id = jobs.id
                           and leases.cancel_requested_at is null))))
"""


class Stopping(NamedTuple):
    """A job that was asked to stop and has not ended, or whose time is over."""

    id: str
    reason: str
    marked: bool


def to_stop(limit: int) -> Statement[list[Stopping]]:
    """Jobs that were asked to stop and have runs that could still start, and jobs whose time is over."""
    return Statement(
        """
        select jobs.id::text,
               coalesce(jobs.cancel_reason, format('timed out: not ended %%s after it was made', timeout)),
               jobs.cancel_requested_at is not null"""
        + TO_STOP
        + """
        order by jobs.id limit %(limit)s
        """,
        {"limit": limit},
        each(Stopping._make),
    )
