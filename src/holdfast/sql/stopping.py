"""Stopping jobs: pending runs end, running runs are cancelled, and no more runs start."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.sql.statement import Statement, count, each, nothing


def stop(job_id: str, outcome: str, reason: str) -> Statement[None]:
    """Mark a job as stopping: nothing more can be added to it, and it ends with `outcome`.

    A job that is already stopping keeps its first reason, and one that has ended is not changed. Read the job
    afterwards to see which: if this statement waited for a transaction that ended the job, it does not see that end.
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


# The job may have been retried since it was found; then it is open again, and its runs must not be stopped. A job is
# reopened together with its runs, and only after the last of them has ended: while its runs are locked, it cannot be.
_STOPPING = """
              and exists (select from holdfast.jobs where jobs.id = %(job_id)s::uuid
                          and jobs.cancel_requested_at is not null and jobs.finished_at is null)
"""


def hold(job_id: str, limit: int) -> Statement[list[str]]:
    """Lock up to `limit` ready and `limit` waiting runs of a job that is being stopped, and return them."""
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


def request_stop(job_id: str, reason: str) -> Statement[list[str]]:
    """Request cancellation of the running attempts of a job that is being stopped. Return their workers."""
    return Statement(
        """
        with held as (
            select run_id from holdfast.leases
            where run_id between holdfast.job_floor(%(job_id)s::uuid) and holdfast.job_ceiling(%(job_id)s::uuid)
              and job_id = %(job_id)s::uuid and cancel_requested_at is null"""
        + _STOPPING
        + """
            order by run_id for update of leases
        ), requested as (
            update holdfast.leases set cancel_requested_at = holdfast.now(), cancel_reason = %(reason)s
            from held where leases.run_id = held.run_id
            returning leases.run_id, leases.number, leases.worker_id
        ), noted as (
            insert into holdfast.events (run_id, at, attempt, type, reason, data)
            select run_id, holdfast.now(), number, 'CANCEL_REQUESTED', %(reason)s, '{"stopped": true}' from requested
        )
        select distinct worker_id::text from requested
        """,
        {"job_id": job_id, "reason": reason},
        each(lambda row: str(row[0])),
        together=True,
    )


def startable(job_id: str) -> Statement[int]:
    """Count the runs, in a job that is being stopped, that are pending or running without a cancel request.

    One statement sees one snapshot, in which each run is in exactly one of these tables.
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


# Jobs that are being stopped and have runs that could still start, and jobs past their deadline.
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
    """A job that is being stopped, or is past its deadline; `marked` if it is already marked as stopping."""

    id: str
    reason: str
    marked: bool


def to_stop(limit: int = 100) -> Statement[list[Stopping]]:
    """Return jobs that are being stopped and have runs that could still start, and jobs past their deadline."""
    return Statement(
        """
        select jobs.id::text,
               coalesce(jobs.cancel_reason, format('timed out: not ended %%s after it was created', timeout)),
               jobs.cancel_requested_at is not null"""
        + TO_STOP
        + """
        order by jobs.id limit %(limit)s
        """,
        {"limit": limit},
        each(Stopping._make),
    )
