"""Workers, which hold leases until they expire."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import orjson

from holdfast.domain.records import WorkerFacts, WorkerRecord
from holdfast.domain.values import AttemptRef, Renewal, WorkerInfo
from holdfast.sql.statement import Rows, Statement, count, each, first, nothing, text_array


def register(worker: WorkerInfo) -> Statement[None]:
    """Register a worker. Every start has a new id, so a restarted worker never inherits leases."""
    return Statement(
        """
        insert into holdfast.workers (id, started_at, heartbeat_at, expires_at, pid, slots, lease, hostname, name,
                                      executor, version, queues, tasks, statistics)
        values (%(id)s::uuid, holdfast.now(), holdfast.now(), holdfast.now() + %(lease)s::interval, %(pid)s, %(slots)s,
                %(lease)s::interval, %(hostname)s, %(name)s, %(executor)s, %(version)s, %(queues)s::text[],
                %(tasks)s::text[], %(environment)s::json)
        on conflict (id) do nothing
        """,
        {
            **{one.name: getattr(worker, one.name) for one in fields(worker)},
            "queues": text_array(worker.queues) if worker.queues is not None else None,
            "tasks": text_array(worker.tasks) if worker.tasks is not None else None,
            "environment": orjson.dumps(worker.environment).decode() if worker.environment is not None else None,
        },
        nothing,
    )


def _renewal(found: Rows) -> Renewal | None:
    if not found:
        return None
    held = [(AttemptRef(run_id, number), stop) for _, run_id, number, stop in found if run_id is not None]
    return Renewal(
        held=frozenset(ref for ref, _ in held),
        cancelled=frozenset(ref for ref, stop in held if stop),
        drain=bool(found[0][0]),
    )


def renew(worker_id: str, completed: int = 0, failed: int = 0) -> Statement[Renewal | None]:
    """Extend the worker's leases. An expired worker is never revived, and a lease is never shortened.

    A renewal that began before the worker deregistered, and waited for that, must not revive it either.
    """
    return Statement(
        """
        with me as (
            update holdfast.workers
            set expires_at = greatest(expires_at, holdfast.now() + lease), heartbeat_at = holdfast.now(),
                tasks_completed = tasks_completed + %(completed)s, tasks_failed = tasks_failed + %(failed)s
            where id = %(worker_id)s::uuid and expires_at > holdfast.now() and stopped_at is null
            returning id, drain_requested_at
        )
        select me.drain_requested_at is not null, leases.run_id::text, leases.number,
               leases.cancel_requested_at is not null
        from me left join holdfast.leases on leases.worker_id = me.id
        """,
        {"worker_id": worker_id, "completed": completed, "failed": failed},
        _renewal,
    )


def note_away(worker_id: str, why: str | None) -> Statement[None]:
    """Record that the cluster of a worker's executor does not respond, and why; None if it responds again."""
    return Statement(
        """
        update holdfast.workers
        set statistics = (coalesce(statistics::jsonb, '{}') - 'executor_away'
                          || case when %(why)s::text is null then '{}'::jsonb
                                  else jsonb_build_object('executor_away', %(why)s::text) end)::json
        where id = %(worker_id)s::uuid and expires_at > holdfast.now()
        """,
        {"worker_id": worker_id, "why": why},
        nothing,
    )


class AwayWorker(NamedTuple):
    """A live worker whose executor cannot reach its cluster."""

    name: str
    executor: str
    why: str


def away() -> Statement[list[AwayWorker]]:
    return Statement(
        """
        select name, executor, statistics->>'executor_away' from holdfast.workers
        where expires_at > holdfast.now() and statistics->>'executor_away' is not null order by name limit 20
        """,
        {},
        each(AwayWorker._make),
    )


def deregister(worker_id: str, completed: int = 0, failed: int = 0, *, settled: bool = False) -> Statement[None]:
    """Mark a worker as stopped, so that its remaining leases can be rescued immediately.

    With `settled`, it has settled every claim it received, so its remaining leases belong to attempts that never
    started. This is ignored if the worker has expired: its results may have been rejected. This waits for a submit that
    is handing it a run, because the new lease would be rejected otherwise.
    """
    return Statement(
        """
        with gone as (
            delete from holdfast.waiting_workers where worker_id = %(worker_id)s::uuid
        )
        update holdfast.workers
        set stopped_at = holdfast.now(), heartbeat_at = least(heartbeat_at, holdfast.now()),
            expires_at = least(expires_at, holdfast.now()),
            settled_at = case when %(settled)s and expires_at > holdfast.now() then holdfast.now() end,
            tasks_completed = tasks_completed + %(completed)s, tasks_failed = tasks_failed + %(failed)s
        where id = %(worker_id)s::uuid and stopped_at is null
        """,
        {"worker_id": worker_id, "completed": completed, "failed": failed, "settled": settled},
        nothing,
    )


def drain(worker_id: str) -> Statement[int]:
    """Request that a worker claims no more runs, and stops when its runs have ended."""
    return Statement(
        """
        update holdfast.workers set drain_requested_at = coalesce(drain_requested_at, holdfast.now())
        where id = %(worker_id)s::uuid and expires_at > holdfast.now()
        returning id
        """,
        {"worker_id": worker_id},
        len,
    )


_COLUMNS = """
        select workers.id::text,
               case when workers.expires_at <= holdfast.now() then 'stopped'
                    when workers.drain_requested_at is not null then 'draining'
                    when held.running = 0 then 'idle' else 'active' end,
               workers.hostname, workers.pid, workers.name, workers.executor, workers.version, workers.slots,
               workers.queues, workers.tasks, held.running, workers.tasks_completed, workers.tasks_failed,
               workers.started_at, workers.heartbeat_at, workers.expires_at, workers.stopped_at
        from holdfast.workers
        cross join lateral (select count(*) as running from holdfast.leases where leases.worker_id = workers.id) as held
"""


def read(worker_id: str) -> Statement[WorkerRecord | None]:
    return Statement(
        _COLUMNS + "where workers.id = %(worker_id)s::uuid", {"worker_id": worker_id}, first(WorkerRecord._make)
    )


def listing(since_hours: float = 24.0) -> Statement[list[WorkerRecord]]:
    """Return live workers, and those that stopped recently."""
    return Statement(
        _COLUMNS
        + """
        where workers.expires_at > holdfast.now() - %(hours)s * interval '1 hour'
        order by workers.started_at desc limit 1000
        """,
        {"hours": since_hours},
        each(WorkerRecord._make),
    )


def of_run(run_id: str) -> Statement[list[WorkerFacts]]:
    """Return the workers that executed a run. Stopped workers are deleted after the retention period."""
    return Statement(
        """
        select workers.id::text, workers.hostname, workers.pid, workers.executor, workers.version,
               workers.statistics::text
        from holdfast.workers where workers.id in (
            select attempts.worker_id from holdfast.attempts where attempts.run_id = %(run_id)s::uuid
            union all
            select leases.worker_id from holdfast.leases where leases.run_id = %(run_id)s::uuid)
        """,
        {"run_id": run_id},
        each(lambda row: WorkerFacts._make((*row[:5], orjson.loads(row[5]) if row[5] else None))),
    )


def forget(older_than_hours: float) -> Statement[int]:
    """Delete workers that expired long ago. One that still has leases is kept until they are rescued."""
    return Statement(
        """
        with gone as (
            delete from holdfast.workers
            where expires_at < holdfast.now() - %(hours)s * interval '1 hour'
              and not exists (select from holdfast.leases where leases.worker_id = workers.id)
            returning id
        ), unlisted as (
            delete from holdfast.waiting_workers using gone where worker_id = gone.id
        )
        select count(*) from gone
        """,
        {"hours": older_than_hours},
        count,
    )
