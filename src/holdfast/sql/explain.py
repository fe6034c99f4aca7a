"""Why a run is waiting: the conditions of a claim, evaluated for one run."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from holdfast.sql.statement import Statement, first

AHEAD_AT_MOST = 1000


class Situation(NamedTuple):
    """The conditions that determine whether a pending run can be claimed now."""

    queue: str
    task: str
    due_in: float | None
    due_at: datetime | None
    blockers: int
    waiting_for: str | None
    paused_by: str | None
    pause_reason: str | None
    paused_at: datetime | None
    ahead: int
    workers: int
    workers_of_queue: int
    workers_of_task: int
    free_slots: int
    executors: list[str]
    workers_away: int
    away: str | None


def situation(run_id: str) -> Statement[Situation | None]:
    return Statement(
        """
        select runs.queue, runs.task,
               extract(epoch from holdfast.readable(waiting.due_at) - holdfast.now())::float8,
               holdfast.readable(waiting.due_at),
               coalesce(waiting.blockers, 0), waiting.reason,
               queues.paused_by, queues.pause_reason, holdfast.readable(queues.paused_at),
               (select count(*) from (
                    select from holdfast.ready as other
                    where other.queue = ready.queue
                      and (other.ord, other.rank_at, other.run_id) < (ready.ord, ready.rank_at, ready.run_id)
                    limit %(at_most)s) as before),
               serving.workers, serving.of_queue, serving.of_task, serving.free,
               serving.executors, serving.away, serving.trouble
        from holdfast.runs
        left join holdfast.ready on ready.run_id = runs.id
        left join holdfast.waiting on waiting.run_id = runs.id
        left join holdfast.queues on queues.name = runs.queue and queues.paused_at is not null
        cross join lateral (
            select count(*) as workers,
                   count(*) filter (where serves) as of_queue,
                   count(*) filter (where serves and knows) as of_task,
                   coalesce(sum(slots - busy) filter (where serves and knows), 0)::integer as free,
                   coalesce(array_agg(distinct executor) filter (where serves), '{}') as executors,
                   count(*) filter (where serves and knows and trouble is not null) as away,
                   min(trouble) filter (where serves and knows) as trouble
            from (select executor, statistics->>'executor_away' as trouble,
                         coalesce(runs.queue = any(queues), true) as serves,
                         coalesce(runs.task = any(tasks), true) as knows, slots,
                         (select count(*) from holdfast.leases where leases.worker_id = workers.id) as busy
                  from holdfast.workers
                  where workers.expires_at > holdfast.now() and workers.drain_requested_at is null) as live
        ) as serving
        where runs.id = %(run_id)s::uuid
        """,
        {"run_id": run_id, "at_most": AHEAD_AT_MOST},
        first(Situation._make),
    )
