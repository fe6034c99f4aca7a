"""Attempts: the history of a run, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from holdfast.domain.records import RUNNER_DETAILS, AttemptRecord, ResultRecord
from holdfast.domain.values import AttemptRef
from holdfast.sql.statement import Row, Statement, each, first, plain_array

# The lowest number of a run's attempts: a run that ends without an attempt gets the next lower one. A statement that
# queries a partitioned table for each of its rows, as this does, may delete rows that other transactions change, but
# must not lock them: PostgreSQL 18 would read freed memory (docs/decisions/0007). Lock them in an earlier statement.
LOWEST = """
            left join lateral (
                select attempts.number from holdfast.attempts
                where attempts.run_id = gone.run_id order by attempts.number limit 1) as lowest on true
"""


def _attempt(row: Row) -> AttemptRecord:
    error, progress, details = (orjson.loads(text) if text else None for text in (*row[10:12], row[14]))
    runner = [(details or {}).get(name) for name in RUNNER_DETAILS]
    return AttemptRecord._make((*row[:10], error, progress, *row[12:14], *runner))


def of_run(run_id: str) -> Statement[list[AttemptRecord]]:
    """Return the attempts of a run in order, including the live one."""
    return Statement(
        """
        select attempts.number, attempts.status, attempts.outcome, attempts.worker_id::text,
               coalesce(attempts.executor, workers.executor), holdfast.readable(attempts.claimed_at),
               holdfast.readable(attempts.started_at), holdfast.readable(attempts.finished_at), attempts.exit_code,
               attempts.reason, attempts.error::text, attempts.progress::text, attempts.result_ref,
               holdfast.readable(workers.heartbeat_at), attempts.details::text
        from holdfast.attempts left join holdfast.workers on workers.id = attempts.worker_id
        where attempts.run_id = %(run_id)s::uuid and attempts.number >= 1
        union all
        select leases.number,
               case when leases.started_at is null and leases.details ->> 'ray_submission_id' is not null
                    then 'SUBMITTED' else 'RUNNING' end,
               null, leases.worker_id::text, coalesce(leases.executor, workers.executor),
               holdfast.readable(leases.claimed_at),
               holdfast.readable(coalesce(leases.started_at, leases.claimed_at)), null, null, leases.cancel_reason,
               null, leases.progress::text, null, holdfast.readable(workers.heartbeat_at), leases.details::text
        from holdfast.leases left join holdfast.workers on workers.id = leases.worker_id
        where leases.run_id = %(run_id)s::uuid
        order by 1
        """,
        {"run_id": run_id},
        each(_attempt),
    )


def ended_by(worker_id: str, refs: Sequence[AttemptRef]) -> Statement[set[AttemptRef]]:
    """Return the attempts whose result was stored by this worker itself."""
    return Statement(
        """
        select attempts.run_id::text, attempts.number
        from unnest(%(run_ids)s::uuid[], %(numbers)s::integer[]) as given (run_id, number)
        join holdfast.attempts on attempts.run_id = given.run_id and attempts.number = given.number
        where attempts.worker_id = %(worker_id)s::uuid
          -- attempts with this error were rescued by another worker, whatever their reason
          and (attempts.status <> 'LOST' or attempts.error ->> 'class' is distinct from 'LeaseExpired')
        """,
        {
            "worker_id": worker_id,
            "run_ids": plain_array([ref.run_id for ref in refs]),
            "numbers": plain_array([ref.number for ref in refs]),
        },
        lambda found: {AttemptRef(*row) for row in found},
    )


def result(run_id: str) -> Statement[ResultRecord | None]:
    return Statement(
        """
        select result::text, result_ref, result_size, encode(result_sha256, 'hex') from holdfast.attempts
        where run_id = %(run_id)s::uuid and outcome = 'SUCCEEDED' and reopened_at is null
        """,
        {"run_id": run_id},
        first(ResultRecord._make),
    )


class Reopened(NamedTuple):
    """A run that was reopened: its former outcome, the job and map that count it, and whether it has dependencies."""

    run_id: str
    outcome: str
    job_id: str | None
    map_id: str | None
    blamed: bool
    waits: bool


def hold_ended(run_ids: Sequence[str]) -> Statement[list[str]]:
    """Lock the runs that can be reopened, and return them."""
    return Statement(
        """
        select run_id::text from holdfast.attempts
        where run_id = any(%(run_ids)s::uuid[]) and outcome in ('FAILED', 'CANCELLED')
          and reopened_at is null
        order by run_id for update
        """,
        {"run_ids": plain_array(run_ids)},
        each(lambda row: str(row[0])),
        together=True,
    )


def reopen(run_ids: Sequence[str], by: str) -> Statement[list[Reopened]]:
    """Reopen runs that this transaction has locked (`hold_ended`), with the full number of attempts.

    A run without dependencies becomes ready; the others wait until their dependencies are counted again. A run whose
    job succeeded without it, or is being stopped, is not changed.
    """
    return Statement(
        """
        with past as (
            select runs.id, runs.queue, runs.task, -runs.priority as ord, runs.job_id, runs.map_id,
                   coalesce(jobs.created_at, holdfast.now()) as rank_at,
                   runs.policy ->> 'critical' is distinct from 'false' as critical,
                   (select count(*) from holdfast.dependencies where dependencies.run_id = runs.id)::integer as edges,
                   (select greatest(max(attempts.number), 0) from holdfast.attempts
                    where attempts.run_id = runs.id) as number
            from holdfast.runs left join holdfast.jobs on jobs.id = runs.job_id
            where runs.id = any(%(run_ids)s::uuid[]) and jobs.outcome is distinct from 'SUCCEEDED'
              and (jobs.finished_at is not null or jobs.cancel_requested_at is null)
        ), reopened as (
            update holdfast.attempts set reopened_at = holdfast.now(), reopened_by = %(by)s
            from past
            where attempts.run_id = past.id and attempts.outcome is not null and attempts.reopened_at is null
            returning attempts.run_id, attempts.outcome, attempts.details ->> 'unreachable' is null as own
        ), back as (
            select past.*, reopened.outcome, reopened.own from reopened join past on past.id = reopened.run_id
        ), queued as (
            insert into holdfast.ready (run_id, rank_at, number, excused, ord, queue, job_id, map_id, task)
            select id, rank_at, number + 1, number, ord, queue, job_id, map_id, task from back where edges = 0
        ), put_off as (
            insert into holdfast.waiting (run_id, due_at, rank_at, blockers, number, excused, ord, queue, reason,
                                          job_id, map_id, task)
            select id, holdfast.now(), rank_at, edges, number + 1, number, ord, queue, 'dependencies', job_id, map_id,
                   task
            from back where edges > 0
        )
        select id::text, outcome, job_id::text, map_id::text, own and critical, edges > 0 from back
        """,
        {"run_ids": plain_array(run_ids), "by": by},
        each(Reopened._make),
        together=True,
    )


def last_workers(run_ids: Sequence[str]) -> Statement[dict[str, str]]:
    """Return the worker of the last ended attempt of each of these runs, by run."""
    return Statement(
        """
        select distinct on (run_id) run_id::text, worker_id::text from holdfast.attempts
        where run_id = any(%(run_ids)s::uuid[]) and number >= 1 and worker_id is not null
        order by run_id, number desc
        """,
        {"run_ids": plain_array(run_ids)},
        lambda found: {row[0]: row[1] for row in found},
    )
