"""Ready runs. A claim deletes them from this table and leases them in the same statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.domain.jobs import Ended
from holdfast.domain.values import Claim, Position
from holdfast.sql.attempts import LOWEST
from holdfast.sql.statement import Row, Statement, count, each, nothing, plain_array, text_array

# `ctid = any(array(...))` evaluates the subquery exactly once, whatever the plan: a claim for k runs never takes more.
# The lower bound skips index entries of runs claimed before, which remain while an old snapshot holds back vacuum. The
# runs of each task that the worker has registered are read in order and merged; runs of other tasks are not read.
_PICK_NEXT = """
    select picked.ctid
    from unnest(%(queues)s::text[], %(ords)s::smallint[], %(ranks)s::timestamptz[], %(ids)s::uuid[])
         as bound (queue, ord, rank_at, run_id)
    cross join lateral (
        select of_task.ctid from unnest(%(tasks)s::text[]) as known (task)
        cross join lateral (
            select ready.ctid, ready.ord, ready.rank_at, ready.run_id from holdfast.ready
            where ready.queue = bound.queue and ready.task = known.task
              and (ready.ord, ready.rank_at, ready.run_id) > (bound.ord, bound.rank_at, bound.run_id)
            order by ready.ord, ready.rank_at, ready.run_id
            limit %(limit)s
            for update skip locked
        ) as of_task
        order by of_task.ord, of_task.rank_at, of_task.run_id
        limit %(limit)s
    ) as picked
    where not exists (select from holdfast.queues
                      where queues.name = bound.queue and queues.paused_at is not null)
    limit %(limit)s
"""

_PICK_ONE = """
    select ready.ctid from holdfast.ready
    where ready.run_id = %(run_id)s::uuid and ready.task = any(%(tasks)s::text[])
      and not exists (select from holdfast.queues
                      where queues.name = ready.queue and queues.paused_at is not null)
    for update skip locked
"""

_TAKE_HEAD = """
with taken as (
    delete from holdfast.ready where ctid = any(array(
"""

_TAKE_TAIL = """
    ))
    and exists (select from holdfast.workers
                where workers.id = %(worker_id)s::uuid and workers.expires_at > holdfast.now()
                  and workers.drain_requested_at is null)
    returning run_id, number, excused, ord, rank_at, job_id, map_id
), leased as (
    insert into holdfast.leases (run_id, worker_id, claimed_at, number, excused, job_id, map_id)
    select run_id, %(worker_id)s::uuid, holdfast.now(), number, excused, job_id, map_id from taken
)
select taken.run_id::text, taken.number, taken.excused, runs.task, runs.queue, runs.parameters::text,
       runs.payload_hash, runs.policy::text,
       case when taken.number > 1 then (
           select count(*) from holdfast.attempts
           where attempts.run_id = taken.run_id
             and (attempts.status = 'LOST' or attempts.reason = 'crash')) else 0 end,
       case when isfinite(runs.run_after) is not false
            then date_part('epoch', holdfast.now() - coalesce(runs.run_after, runs.created_at)) else 0 end,
       runs.job_id::text, runs.traceparent, taken.ord, taken.rank_at::text
from taken join holdfast.runs on runs.id = taken.run_id
order by taken.ord, taken.rank_at, taken.run_id
"""


def _claim(row: Row) -> Claim:
    # Without the checks of `Claim._make`, because this is done for every run.
    return tuple.__new__(Claim, row)


def claim(worker_id: str, positions: Sequence[Position], tasks: Sequence[str], limit: int) -> Statement[list[Claim]]:
    """Move up to `limit` runs of these tasks from ready to leases, in the order of the queues given."""
    return Statement(
        _TAKE_HEAD + _PICK_NEXT + _TAKE_TAIL,
        {
            "worker_id": worker_id,
            "queues": text_array([p.queue for p in positions]),
            "ords": plain_array([p.ord for p in positions]),
            "ranks": text_array([p.rank_at for p in positions]),
            "ids": plain_array([p.run_id for p in positions]),
            "tasks": text_array(tasks),
            "limit": limit,
        },
        each(_claim),
    )


def claim_one(worker_id: str, run_id: str, tasks: Sequence[str]) -> Statement[list[Claim]]:
    """Lease this run if it is ready and its task is one of these."""
    return Statement(
        _TAKE_HEAD + _PICK_ONE + _TAKE_TAIL,
        {"worker_id": worker_id, "run_id": run_id, "tasks": text_array(tasks)},
        each(_claim),
    )


def withdraw(run_ids: Sequence[str], reason: str, details: str | None = None) -> Statement[list[Ended]]:
    """End pending runs CANCELLED. Each gets an attempt row with the next number below 1."""
    return Statement(
        """
        with idle as (
            delete from holdfast.waiting where run_id = any(%(run_ids)s::uuid[]) returning run_id, job_id, map_id
        ), queued as (
            delete from holdfast.ready where run_id = any(%(run_ids)s::uuid[]) returning run_id, job_id, map_id
        ), gone as (
            select run_id, job_id, map_id from idle union all select run_id, job_id, map_id from queued
        ), ended as (
            insert into holdfast.attempts (run_id, number, finished_at, status, outcome, reason, details)
            select gone.run_id, least(1, lowest.number) - 1, holdfast.now(), 'CANCELLED', 'CANCELLED', %(reason)s,
                   %(details)s::json
            from gone """
        + LOWEST
        + """
        ), counted as (
            insert into holdfast.tallies (task, kind, amount)
            select runs.task, 'CANCELLED', count(*) from gone join holdfast.runs on runs.id = gone.run_id
            group by runs.task
        )
        select run_id::text, 'CANCELLED', job_id::text, map_id::text from gone
        """,
        {"run_ids": plain_array(run_ids), "reason": reason, "details": details},
        each(lambda row: Ended(*row)),
        together=True,
    )


# The pairs of queue and task that have ready runs, found by skipping from one to the next in the index.
BY_TASK = """
        with recursive queued_task (queue, task) as (
            (select queue, task from holdfast.ready order by queue, task limit 1)
            union all
            select next.queue, next.task from queued_task cross join lateral (
                select ready.queue, ready.task from holdfast.ready
                where (ready.queue, ready.task) > (queued_task.queue, queued_task.task)
                order by ready.queue, ready.task limit 1) as next
        )
"""


def by_task() -> Statement[list[tuple[str, str]]]:
    """Return the pairs of queue and task that have ready runs."""
    return Statement(BY_TASK + "select queue, task from queued_task", {}, each(lambda row: (str(row[0]), str(row[1]))))


def look(tasks: Sequence[str]) -> Statement[tuple[list[str], float | None]]:
    """Return the queues that have ready runs of these tasks, and the seconds until the next waiting run is due."""
    return Statement(
        BY_TASK
        + """
        select array(select distinct queue from queued_task where task = any(%(tasks)s::text[]) order by queue),
               (select extract(epoch from holdfast.readable(min(due_at)) - holdfast.now())::float8 from holdfast.waiting
                where blockers = 0)
        """,
        {"tasks": text_array(tasks)},
        lambda found: (list(found[0][0]), found[0][1]),
    )


def name_tasks(limit: int) -> Statement[int]:
    """Set the task of ready runs written by the previous version. Return how many there were."""
    return Statement(
        """
        with unnamed as (
            delete from holdfast.ready where ctid = any(array(
                select ctid from holdfast.ready where task = '' limit %(limit)s for update skip locked))
            returning run_id, rank_at, number, excused, ord, queue, job_id, map_id
        ), named as (
            insert into holdfast.ready (run_id, rank_at, number, excused, ord, queue, job_id, map_id, task)
            select unnamed.*, runs.task from unnamed join holdfast.runs on runs.id = unnamed.run_id
        )
        select count(*) from unnamed
        """,
        {"limit": limit},
        count,
    )


def ring(queues: Iterable[str]) -> Statement[None]:
    """Notify listening workers that these queues have runs."""
    return Statement(
        "select pg_notify('holdfast', queue) from unnest(%(queues)s::text[]) as queue",
        {"queues": text_array(queues)},
        nothing,
    )
