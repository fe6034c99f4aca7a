"""What can be measured at a moment: how long queues are, how workers are. Ages are by the database's clock."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.sql.ready import BY_TASK
from holdfast.sql.statement import Statement, each


class QueueGauge(NamedTuple):
    """A queue; `lag` is how long its first ready run has waited, in seconds."""

    name: str
    ready: int
    waiting: int
    running: int
    lag: float


def queues() -> Statement[list[QueueGauge]]:
    return Statement(
        """
        with parts (queue, ready, waiting, running, lag) as (
            select queue, count(*), 0, 0, extract(epoch from holdfast.now() - holdfast.readable(min(rank_at)))
            from holdfast.ready group by queue
            union all
            select queue, 0, count(*), 0, 0 from holdfast.waiting group by queue
            union all
            select runs.queue, 0, 0, count(*), 0
            from holdfast.leases join holdfast.runs on runs.id = leases.run_id group by runs.queue
            union all
            select name, 0, 0, 0, 0 from holdfast.queues
            union all
            select 'default', 0, 0, 0, 0
        )
        select queue, sum(ready)::bigint, sum(waiting)::bigint, sum(running)::bigint, greatest(max(lag), 0)::float8
        from parts group by queue order by queue
        """,
        {},
        each(QueueGauge._make),
    )


class Unknown(NamedTuple):
    """Ready runs of a task that no live worker of their queue knows; `lag` is how long the first has waited."""

    queue: str
    task: str
    ready: int
    lag: float


def unknown() -> Statement[list[Unknown]]:
    """Ready runs that no live worker can run. Queues that are paused, or have no live worker at all, are left out."""
    return Statement(
        BY_TASK
        + """
        select lane.queue, lane.task, found.amount, greatest(found.lag, 0)::float8
        from lane
        cross join lateral (
            select count(*) filter (where coalesce(lane.queue = any(workers.queues), true)) as serving,
                   count(*) filter (where coalesce(lane.queue = any(workers.queues), true)
                                    and coalesce(lane.task = any(workers.tasks), true)) as knowing
            from holdfast.workers
            where workers.expires_at > holdfast.now() and workers.drain_requested_at is null) as live
        cross join lateral (
            select count(*) as amount, extract(epoch from holdfast.now() - min(rank_at)) as lag
            from holdfast.ready where ready.queue = lane.queue and ready.task = lane.task) as found
        where live.serving > 0 and live.knowing = 0 and lane.task <> ''
          and not exists (select from holdfast.queues
                          where queues.name = lane.queue and queues.paused_at is not null)
        order by lane.queue, lane.task
        """,
        {},
        each(Unknown._make),
    )


class WorkerGauge(NamedTuple):
    """A live worker and the seconds since its last heartbeat."""

    id: str
    age: float
    slots: int
    draining: bool


def workers() -> Statement[list[WorkerGauge]]:
    return Statement(
        """
        select id::text, greatest(extract(epoch from holdfast.now() - heartbeat_at), 0)::float8, slots,
               drain_requested_at is not null
        from holdfast.workers where expires_at > holdfast.now() order by id
        """,
        {},
        each(WorkerGauge._make),
    )
