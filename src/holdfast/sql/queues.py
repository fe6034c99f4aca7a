"""Queues and their pauses. A queue without a row exists and is not paused."""

from __future__ import annotations

from holdfast.domain.records import QueueRecord
from holdfast.sql.statement import Statement, each, nothing


def pause(name: str, by: str, reason: str | None) -> Statement[None]:
    return Statement(
        """
        insert into holdfast.queues (name, created_at, paused_at, paused_by, pause_reason)
        values (%(name)s, holdfast.now(), holdfast.now(), %(by)s, %(reason)s)
        on conflict (name) do update
        set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
        where queues.paused_at is null
        """,
        {"name": name, "by": by, "reason": reason},
        nothing,
    )


def resume(name: str) -> Statement[None]:
    return Statement(
        """
        update holdfast.queues set paused_at = null, paused_by = null, pause_reason = null where name = %(name)s
        """,
        {"name": name},
        nothing,
    )


def listing() -> Statement[list[QueueRecord]]:
    """Return every queue that has live runs or a row."""
    return Statement(
        """
        with ready as (select queue, count(*) as amount, min(rank_at) as oldest from holdfast.ready group by queue),
             waiting as (select queue, count(*) as amount from holdfast.waiting group by queue),
             running as (select runs.queue, count(*) as amount from holdfast.leases
                         join holdfast.runs on runs.id = leases.run_id group by runs.queue),
             names as (select queue from ready union select queue from waiting union select queue from running
                       union select name from holdfast.queues)
        select names.queue, coalesce(ready.amount, 0), coalesce(waiting.amount, 0), coalesce(running.amount, 0),
               holdfast.readable(ready.oldest), holdfast.readable(queues.paused_at), queues.paused_by,
               queues.pause_reason
        from names
        left join ready on ready.queue = names.queue
        left join waiting on waiting.queue = names.queue
        left join running on running.queue = names.queue
        left join holdfast.queues on queues.name = names.queue
        order by names.queue
        """,
        {},
        each(QueueRecord._make),
    )


def read(name: str) -> Statement[QueueRecord]:
    """Return one queue, with zeros if it has no runs; only its own runs are counted."""
    return Statement(
        """
        select given.name,
               (select count(*) from holdfast.ready where ready.queue = given.name),
               (select count(*) from holdfast.waiting where waiting.queue = given.name),
               (select count(*) from holdfast.leases join holdfast.runs on runs.id = leases.run_id
                where runs.queue = given.name),
               (select holdfast.readable(min(rank_at)) from holdfast.ready where ready.queue = given.name),
               holdfast.readable(queues.paused_at), queues.paused_by, queues.pause_reason
        from (values (%(name)s::text)) as given (name)
        left join holdfast.queues on queues.name = given.name
        """,
        {"name": name},
        lambda found: QueueRecord._make(found[0]),
    )
