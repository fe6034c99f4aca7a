"""Take-over: a lease moves once, from the worker that claimed the run to the process that executes it.

The row's `worker_id` then no longer names the claiming worker, so every fence rejects that worker from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from holdfast.domain.values import AttemptRef, Claim
from holdfast.sql.leases import HELD
from holdfast.sql.statement import Statement, count, first

Details = Mapping[str, Any]


def move(worker_id: str, ref: AttemptRef, claimed_by: str, executor: str | None, details: Details) -> Statement[int]:
    """Make `worker_id` the holder of the lease, if the claiming worker still holds it and no cancel was requested.

    Whether the claiming worker is alive does not matter: as long as its lease is not rescued, it can be taken over.
    """
    return Statement(
        """
        with moved as (
            update holdfast.leases
            set worker_id = %(worker_id)s::uuid, claimed_by = leases.worker_id, started_at = holdfast.now(),
                executor = coalesce(%(executor)s, leases.executor),
                details = (coalesce(leases.details::jsonb, '{}') || %(details)s::jsonb
                           || jsonb_build_object('claimed_by', leases.worker_id))::json
            where leases.run_id = %(run_id)s::uuid and leases.number = %(number)s
              and leases.worker_id = %(claimed_by)s::uuid
              and leases.claimed_by is null
              and leases.cancel_requested_at is null
              and exists (select from holdfast.workers
                          where workers.id = %(worker_id)s::uuid and workers.expires_at > holdfast.now())
            returning leases.run_id, leases.number, leases.claimed_by
        ), noted as (
            insert into holdfast.events (run_id, at, attempt, type, reason)
            select run_id, holdfast.now(), number, 'TAKEN_OVER', 'from worker ' || claimed_by from moved
        )
        select count(*) from moved
        """,
        {
            "worker_id": worker_id,
            "run_id": ref.run_id,
            "number": ref.number,
            "claimed_by": claimed_by,
            "executor": executor,
            "details": orjson.dumps(details).decode(),
        },
        count,
        together=True,
    )


def taken(worker_id: str, ref: AttemptRef, claimed_by: str) -> Statement[Claim | None]:
    """Return the attempt that this worker has taken over, with everything needed to execute it."""
    return Statement(
        """
        select leases.run_id::text, leases.number, leases.excused, runs.task, runs.queue, runs.parameters::text,
               runs.payload_hash, runs.policy::text,
               (select count(*) from holdfast.attempts where attempts.run_id = leases.run_id
                  and (attempts.status = 'LOST' or attempts.reason = 'crash')),
               case when isfinite(runs.run_after) is not false
                    then date_part('epoch', holdfast.now() - coalesce(runs.run_after, runs.created_at))
                    else 0 end,
               runs.job_id::text, runs.traceparent, -runs.priority, leases.claimed_at::text
        from holdfast.leases join holdfast.runs on runs.id = leases.run_id
        where leases.run_id = %(run_id)s::uuid and leases.number = %(number)s
          and leases.claimed_by = %(claimed_by)s::uuid
        """
        + HELD,
        {"worker_id": worker_id, "run_id": ref.run_id, "number": ref.number, "claimed_by": claimed_by},
        first(Claim._make),
        together=True,
    )


class Refusal(NamedTuple):
    """Why an attempt could not be taken over, and the task that the refusal is counted for."""

    task: str
    reason: str


def refusal(worker_id: str, ref: AttemptRef, claimed_by: str) -> Statement[Refusal | None]:
    """Return why this worker could not take over the attempt; None if there is no such run."""
    return Statement(
        """
        select runs.task, 'take-over refused: ' || case
                 when not exists (select from holdfast.workers
                                  where workers.id = %(worker_id)s::uuid and workers.expires_at > holdfast.now())
                 then 'the worker that asked is not alive'
                 when attempts.run_id is not null then 'the attempt ended ' || attempts.status
                 when leases.run_id is null then 'the attempt is not running'
                 when leases.claimed_by is not null then 'worker ' || leases.worker_id || ' took it over before'
                 when leases.worker_id <> %(claimed_by)s::uuid then 'worker ' || leases.worker_id || ' holds it'
                 when leases.cancel_requested_at is not null then 'the run was cancelled'
                 else 'the lease was not free' end
        from holdfast.runs
        left join holdfast.leases on leases.run_id = runs.id and leases.number = %(number)s
        left join holdfast.attempts on attempts.run_id = runs.id and attempts.number = %(number)s
        where runs.id = %(run_id)s::uuid
        """,
        {"worker_id": worker_id, "run_id": ref.run_id, "number": ref.number, "claimed_by": claimed_by},
        first(Refusal._make),
        together=True,
    )


def describe(worker_id: str, ref: AttemptRef, details: Details) -> Statement[int]:
    """Record details about where the attempt is executed. Rejected once the worker has lost the lease."""
    return Statement(
        """
        update holdfast.leases
        set details = (coalesce(leases.details::jsonb, '{}') || %(details)s::jsonb)::json
        where leases.run_id = %(run_id)s::uuid and leases.number = %(number)s
        """
        + HELD
        + """
        returning leases.run_id
        """,
        {"worker_id": worker_id, "details": orjson.dumps(details).decode(), **ref._asdict()},
        len,
    )
