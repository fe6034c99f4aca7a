"""Ready runs, for the RQ doorbell, which sends one message per run."""

from __future__ import annotations

from holdfast.domain.doorbell import Ring
from holdfast.sql.ready import BY_TASK
from holdfast.sql.statement import Statement, count, each


def ready(per_queue: int, limit: int = 5000) -> Statement[list[Ring]]:
    """Return the first runs of every queue that is not paused, in the order in which they should start."""
    return Statement(
        BY_TASK
        + """
        select first.run_id::text, first.number, first.queue
        from (select distinct queue from queued_task) as queues
        cross join lateral (
            select of_task.* from queued_task cross join lateral (
                select ready.run_id, ready.number, ready.ord, ready.rank_at, ready.queue from holdfast.ready
                where ready.queue = queued_task.queue and ready.task = queued_task.task
                order by ready.ord, ready.rank_at, ready.run_id limit %(per_queue)s) as of_task
            where queued_task.queue = queues.queue
            order by of_task.ord, of_task.rank_at, of_task.run_id limit %(per_queue)s) as first
        where not exists (select from holdfast.queues as known
                          where known.name = first.queue and known.paused_at is not null)
        limit %(limit)s
        """,
        {"per_queue": per_queue, "limit": limit},
        each(Ring._make),
    )


def claimable(run_id: str) -> Statement[bool]:
    """Return whether a claim of this run may succeed now: it is ready or due, or its lease has expired.

    This is only a hint: a claim may still fail.
    """
    return Statement(
        """
        select exists (select from holdfast.ready where run_id = %(run_id)s::uuid)
            or exists (select from holdfast.waiting
                       where run_id = %(run_id)s::uuid and blockers = 0 and due_at <= holdfast.now())
            or exists (select from holdfast.leases
                       where run_id = %(run_id)s::uuid
                         and not exists (select from holdfast.workers
                                         where workers.id = leases.worker_id and workers.expires_at > holdfast.now()))
        """,
        {"run_id": run_id},
        lambda found: bool(found[0][0]),
    )


def forget_single_workers(hours: float = 24.0, limit: int = 5000) -> Statement[int]:
    """Delete old worker rows that were created for one run: there is one for every run that RQ executed."""
    return Statement(
        """
        with gone as (
            delete from holdfast.workers where id = any(array(
                select workers.id from holdfast.workers
                where workers.expires_at < holdfast.now() - %(hours)s * interval '1 hour' and workers.queues = '{}'
                  and not exists (select from holdfast.leases where leases.worker_id = workers.id)
                limit %(limit)s))
            returning id
        )
        select count(*) from gone
        """,
        {"hours": hours, "limit": limit},
        count,
    )
