"""Jobs and their counters, which are updated in the transaction that changes the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import timedelta

from holdfast.domain.jobs import JobRecord, NewJob
from holdfast.domain.states import Status
from holdfast.sql.statement import Row, Statement, count, each, first, nothing, plain_array, text_array
from holdfast.sql.tallies import BOUNDS


def insert(new: NewJob, first_tasks: int) -> Statement[int]:
    """Insert a job, counting the tasks created with it. Return 0 if it already exists."""
    return Statement(
        """
        with made as (
            insert into holdfast.jobs (id, created_at, deadline_at, timeout, total, first_tasks, name, description,
                                       submitted_by)
            values (%(id)s::uuid, holdfast.now(), holdfast.now() + %(timeout)s::interval, %(timeout)s::interval,
                    %(first_tasks)s, %(first_tasks)s, %(name)s, %(description)s, %(submitted_by)s)
            on conflict (id) do nothing returning id
        ), counted as (
            insert into holdfast.tallies (task, kind, amount) select '', 'job created', count(*) from made
            having count(*) > 0
        )
        select count(*) from made
        """,
        asdict(new) | {"first_tasks": first_tasks},
        count,
        together=True,
    )


def grow(job_id: str, amount: int) -> Statement[int]:
    """Count added runs. Return 0 if the job has ended or is being stopped, so that nothing may be added."""
    return Statement(
        """
        update holdfast.jobs set total = total + %(amount)s
        where id = %(job_id)s::uuid and finished_at is null and cancel_requested_at is null
        returning id
        """,
        {"job_id": job_id, "amount": amount},
        len,
        together=True,
    )


def hold(job_id: str, lasting: timedelta) -> Statement[None]:
    """Keep a job from ending for a while, even if it has no open runs."""
    return Statement(
        "update holdfast.jobs set held_until = holdfast.now() + %(lasting)s::interval where id = %(job_id)s::uuid",
        {"job_id": job_id, "lasting": lasting},
        nothing,
        together=True,
    )


def stop_holding(job_id: str) -> Statement[None]:
    """Stop keeping a job from ending."""
    return Statement(
        "update holdfast.jobs set held_until = null where id = %(job_id)s::uuid and held_until is not null",
        {"job_id": job_id},
        nothing,
        together=True,
    )


def start_late(limit: int) -> Statement[int]:
    """Mark jobs as started that were locked when their first run was claimed. Return how many were processed.

    Jobs that another transaction still has locked are left for the next call.
    """
    return Statement(
        """
        with noted as (
            select job_id, min(at) as at from holdfast.late_starts group by job_id limit %(limit)s
        ), held as (
            select jobs.id from holdfast.jobs where jobs.id in (select job_id from noted)
            order by jobs.id for no key update skip locked
        ), started as (
            update holdfast.jobs set started_at = noted.at from noted join held on held.id = noted.job_id
            where jobs.id = held.id and jobs.started_at is null
        ), done as (
            delete from holdfast.late_starts
            where job_id in (select id from held)
               or (job_id in (select job_id from noted)
                   and not exists (select from holdfast.jobs where jobs.id = late_starts.job_id))
            returning job_id
        )
        select count(*) from done
        """,
        {"limit": limit},
        count,
    )


NO_LONGER_HELD = """
        from holdfast.jobs
        where finished_at is null and held_until <= holdfast.now() and total = succeeded + failed + cancelled
"""


def no_longer_held(limit: int) -> Statement[list[str]]:
    """Return jobs that were kept from ending, and to which nothing more was added in time."""
    return Statement(
        f"""
        select id::text {NO_LONGER_HELD}
        order by id limit %(limit)s
        """,
        {"limit": limit},
        each(lambda row: str(row[0])),
    )


@dataclass(slots=True)
class Move:
    """Changes to a job's counters."""

    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    broken: int = 0
    added: int = 0


_COUNTERS = tuple(one.name for one in fields(Move))


def _columns(moves: Mapping[str, Move]) -> dict[str, str]:
    """Return the jobs in the order of their ids, and each counter as an array in that order."""
    ids = sorted(moves)
    counters = {name: plain_array([getattr(moves[id_], name) for id_ in ids]) for name in _COUNTERS}
    return {"ids": plain_array(ids), **counters}


def critical(run_ids: Sequence[str]) -> Statement[list[str]]:
    """Return the jobs of the critical runs among these, one entry for each run."""
    return Statement(
        """
        select job_id::text from holdfast.runs
        where id = any(%(run_ids)s::uuid[]) and job_id is not null
          and policy ->> 'critical' is distinct from 'false'
        """,
        {"run_ids": plain_array(run_ids)},
        each(lambda row: str(row[0])),
        together=True,
    )


def settle(moves: Mapping[str, Move]) -> Statement[None]:
    """Update the counters of jobs. A job without open runs ends: FAILED if a critical run failed or was cancelled.

    A job that has already ended is not changed.
    """
    return Statement(
        """
        with given as (
            select * from unnest(%(ids)s::uuid[], %(succeeded)s::integer[], %(failed)s::integer[],
                                 %(cancelled)s::integer[], %(broken)s::integer[], %(added)s::integer[])
                          as given (id, succeeded, failed, cancelled, broken, added)
        ), held as (
            select id from holdfast.jobs
            where id = any(%(ids)s::uuid[]) and finished_at is null order by id for update
        ), moved as (
            update holdfast.jobs
            set total = jobs.total + given.added, succeeded = jobs.succeeded + given.succeeded,
                failed = jobs.failed + given.failed, cancelled = jobs.cancelled + given.cancelled,
                broken = jobs.broken + given.broken,
                finished_at = case when jobs.total + given.added = jobs.succeeded + given.succeeded + jobs.failed
                                        + given.failed + jobs.cancelled + given.cancelled
                                        and coalesce(jobs.held_until <= holdfast.now(), true)
                                   then holdfast.now() end,
                outcome = case when jobs.total + given.added = jobs.succeeded + given.succeeded + jobs.failed
                                    + given.failed + jobs.cancelled + given.cancelled
                                    and coalesce(jobs.held_until <= holdfast.now(), true)
                               then coalesce(jobs.stop_outcome, case when jobs.broken + given.broken > 0 then 'FAILED'
                                                                     else 'SUCCEEDED' end) end
            from given join held on held.id = given.id
            where jobs.id = given.id
            returning jobs.outcome,
                      extract(epoch from holdfast.now() - coalesce(jobs.started_at, jobs.created_at))::float8 as seconds
        )
        insert into holdfast.tallies (task, kind, bucket, amount, seconds)
        select '', 'job ' || outcome, width_bucket(seconds, %(bounds)s::float8[]), 1, seconds
        from moved where outcome is not null
        """,
        {**_columns(moves), "bounds": plain_array(BOUNDS)},
        nothing,
        together=True,
    )


def reopen(moves: Mapping[str, Move]) -> Statement[int]:
    """Reopen jobs whose runs were reopened, with their full timeout; `moves` has the number of runs.

    A job that succeeded, or is being stopped, is not changed. Return how many were reopened.
    """
    return Statement(
        """
        with held as (
            select id from holdfast.jobs
            where id = any(%(ids)s::uuid[]) and outcome is distinct from 'SUCCEEDED'
              and (finished_at is not null or cancel_requested_at is null)
            order by id for update
        )
        update holdfast.jobs
        set failed = jobs.failed - given.failed, cancelled = jobs.cancelled - given.cancelled,
            broken = jobs.broken - given.broken, finished_at = null, outcome = null, cancel_requested_at = null,
            cancel_reason = null, stop_outcome = null, deadline_at = holdfast.now() + jobs.timeout
        from unnest(%(ids)s::uuid[], %(failed)s::integer[], %(cancelled)s::integer[], %(broken)s::integer[])
             as given (id, failed, cancelled, broken)
        where jobs.id = given.id and jobs.id in (select id from held)
        returning jobs.id
        """,
        _columns(moves),
        len,
        together=True,
    )


def to_retry(job_id: str) -> Statement[list[str]]:
    """Return the runs of a job that failed or were cancelled, except those cancelled as unreachable."""
    return Statement(
        """
        select attempts.run_id::text
        from holdfast.jobs
        join holdfast.attempts on attempts.run_id between holdfast.job_floor(jobs.id) and holdfast.job_ceiling(jobs.id)
        join holdfast.runs on runs.id = attempts.run_id and runs.job_id = jobs.id
        where jobs.id = %(job_id)s::uuid and attempts.reopened_at is null
          and (attempts.outcome = 'FAILED'
               or (attempts.outcome = 'CANCELLED' and attempts.details ->> 'unreachable' is null))
        order by attempts.run_id
        """,
        {"job_id": job_id},
        each(lambda row: str(row[0])),
    )


def first_blamed(job_id: str) -> Statement[str | None]:
    """Describe the first critical task that failed or was cancelled, ignoring tasks cancelled as unreachable."""
    return Statement(
        """
        select coalesce(runs.child_key, runs.id::text) || ' (' || runs.task || ')'
               || coalesce(': ' || coalesce((attempts.error ->> 'class') || ': '
                                            || split_part(left(attempts.error ->> 'message', 200), chr(10), 1),
                                            attempts.reason), '')
        from holdfast.jobs
        join holdfast.attempts on attempts.run_id between holdfast.job_floor(jobs.id) and holdfast.job_ceiling(jobs.id)
        join holdfast.runs on runs.id = attempts.run_id and runs.job_id = jobs.id
        where jobs.id = %(job_id)s::uuid and attempts.reopened_at is null
          and attempts.outcome in ('FAILED', 'CANCELLED')
          and attempts.details ->> 'unreachable' is null and runs.policy ->> 'critical' is distinct from 'false'
        order by attempts.run_id limit 1
        """,
        {"job_id": job_id},
        first(lambda row: str(row[0])),
    )


_COLUMNS = """
    select id::text, name,
           coalesce(outcome, case when started_at is null then 'PENDING' else 'RUNNING' end), description, created_at,
           started_at, finished_at, deadline_at, cancel_requested_at, cancel_reason, total, succeeded, failed,
           cancelled, broken, first_tasks, submitted_by, stop_outcome
    from holdfast.jobs
"""


def _record(row: Row) -> JobRecord:
    return JobRecord(row[0], row[1], Status(row[2]), *row[3:])


def read(job_id: str) -> Statement[JobRecord | None]:
    return Statement(_COLUMNS + "where id = %(job_id)s::uuid", {"job_id": job_id}, first(_record))


_WITH_STATUS = {
    None: "",
    "PENDING": "and finished_at is null and started_at is null ",
    "RUNNING": "and finished_at is null and started_at is not null ",
    "SUCCEEDED": "and outcome = 'SUCCEEDED' ",
    "FAILED": "and outcome = 'FAILED' ",
    "CANCELLED": "and outcome = 'CANCELLED' ",
}


def listing(status: str | None, before: str, limit: int, name: str | None = None) -> Statement[list[JobRecord]]:
    """Return jobs older than `before`, newest first."""
    return Statement(
        _COLUMNS
        + "where id < %(before)s::uuid "
        + _WITH_STATUS[status]
        + "and coalesce(name = %(name)s, %(name)s::text is null) order by id desc limit %(limit)s",
        {"before": before, "limit": limit, "name": name},
        each(_record),
    )


def first_keys(first_id: str, last_id: str, keys: Sequence[str]) -> Statement[dict[str, str]]:
    """Return the ids of the tasks created with a job, by key, for these keys."""
    return Statement(
        """
        select child_key, id::text from holdfast.runs
        where id between %(first_id)s::uuid and %(last_id)s::uuid and child_key = any(%(keys)s::text[])
        """,
        {"first_id": first_id, "last_id": last_id, "keys": text_array(keys)},
        lambda found: {row[0]: row[1] for row in found},
    )


def existing(ids: Sequence[str]) -> Statement[set[str]]:
    """Return the ids that belong to a run."""
    return Statement(
        "select id::text from holdfast.runs where id = any(%(ids)s::uuid[])",
        {"ids": plain_array(ids)},
        lambda found: {row[0] for row in found},
    )


def ready_queues(job_id: str) -> Statement[list[str]]:
    """Return the queues in which runs of this job are ready."""
    return Statement(
        """
        select distinct queue from holdfast.ready
        where run_id between holdfast.job_floor(%(job_id)s::uuid) and holdfast.job_ceiling(%(job_id)s::uuid)
          and job_id = %(job_id)s::uuid
        """,
        {"job_id": job_id},
        each(lambda row: str(row[0])),
    )


def task_ids(job_id: str, after: str | None, limit: int) -> Statement[list[str]]:
    """Return the ids of a job's runs in order; those created with the job come first."""
    return Statement(
        """
        select id::text from holdfast.runs
        where id between holdfast.job_floor(%(job_id)s::uuid) and holdfast.job_ceiling(%(job_id)s::uuid)
          and id > coalesce(%(after)s::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
          and job_id = %(job_id)s::uuid
        order by id limit %(limit)s
        """,
        {"job_id": job_id, "after": after, "limit": limit},
        each(lambda row: str(row[0])),
    )


def last_task(job_id: str) -> Statement[str | None]:
    """Return the last run in the order of a job's runs."""
    return Statement(
        """
        select id::text from holdfast.runs
        where id between holdfast.job_floor(%(job_id)s::uuid) and holdfast.job_ceiling(%(job_id)s::uuid)
          and job_id = %(job_id)s::uuid
        order by id desc limit 1
        """,
        {"job_id": job_id},
        first(lambda row: str(row[0])),
    )
