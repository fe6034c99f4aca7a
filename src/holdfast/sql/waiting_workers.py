"""Workers that wait for a run. The statement that creates a run may lease it to one of them: `holdfast.hand_over`.

That function, `wait` and `leave` lock the row of a worker, skipping locked rows, so none ever waits for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.domain.doorbell import Address
from holdfast.domain.values import Claim
from holdfast.sql.ready import BY_TASK
from holdfast.sql.statement import Rows, Statement, count, text_array

# While an old snapshot holds back vacuum, every update leaves a dead row that each submit has to read. Once the table
# has this many bytes, workers no longer list themselves here, and wait for a hint instead.
MOST_BYTES = 1 << 20


class Listed(NamedTuple):
    """Whether the worker is waiting now; if not, `found` says whether there are runs for it."""

    waits: bool
    found: bool


def wait(worker_id: str, address: Address, queues: Sequence[str] | None, tasks: Sequence[str]) -> Statement[Listed]:
    """Make this worker wait for a run, unless there already is one for it, or it is being given one now."""
    return Statement(
        BY_TASK
        + """
        , work as (
            select exists (select from queued_task
                           where task = any(%(tasks)s::text[])
                             and (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
                             and not exists (select from holdfast.queues
                                             where queues.name = queued_task.queue and queues.paused_at is not null))
                   as found
        ), own as (
            select worker_id from holdfast.waiting_workers where worker_id = %(worker_id)s::uuid for update skip locked
        ), listed as (
            insert into holdfast.waiting_workers (worker_id, since, listener, channel)
            select %(worker_id)s::uuid, holdfast.now(), %(listener)s, %(channel)s from work
            where not work.found and pg_relation_size('holdfast.waiting_workers') < %(most_bytes)s
              and (exists (select from own)
                   or not exists (select from holdfast.waiting_workers where worker_id = %(worker_id)s::uuid))
            on conflict (worker_id) do update
            set since = excluded.since, listener = excluded.listener, channel = excluded.channel
            returning worker_id
        )
        select exists (select from listed), work.found from work
        """,
        {
            "worker_id": worker_id,
            "listener": address.listener,
            "channel": address.channel,
            "queues": text_array(queues) if queues is not None else None,
            "tasks": text_array(tasks),
            "most_bytes": MOST_BYTES,
        },
        lambda found: Listed(bool(found[0][0]), bool(found[0][1])),
    )


def leave(worker_id: str) -> Statement[bool]:
    """Stop this worker's wait. Return False if it has been given a run, or is being given one now."""
    return Statement(
        """
        with gone as (
            update holdfast.waiting_workers set since = null
            where worker_id = (select worker_id from holdfast.waiting_workers
                               where worker_id = %(worker_id)s::uuid and since is not null for update skip locked)
            returning worker_id
        )
        select count(*) from gone
        """,
        {"worker_id": worker_id},
        lambda found: count(found) > 0,
    )


class Given(NamedTuple):
    """Whether a worker is still waiting; if not, everything that is leased to it, even if it does not know."""

    waits: bool
    claims: list[Claim]


def _given(found: Rows) -> Given:
    return Given(bool(found[0][0]), [Claim._make(row[1:]) for row in found if row[1] is not None])


def given(worker_id: str) -> Statement[Given]:
    """Return what this worker was given if it is no longer waiting: the notification may have been lost."""
    return Statement(
        """
        select own.waits, leases.run_id::text, leases.number, leases.excused, runs.task, runs.queue,
               runs.parameters::text, runs.payload_hash, runs.policy::text,
               case when leases.number > 1 then (
                   select count(*) from holdfast.attempts
                   where attempts.run_id = leases.run_id
                     and (attempts.status = 'LOST' or attempts.reason = 'crash')) else 0 end,
               case when isfinite(runs.run_after) is not false
                    then extract(epoch from holdfast.now() - coalesce(runs.run_after, runs.created_at))::float8
                    else 0 end,
               runs.job_id::text, runs.traceparent, -runs.priority, leases.claimed_at::text
        from (select exists (select from holdfast.waiting_workers
                             where worker_id = %(worker_id)s::uuid and since is not null) as waits) as own
        left join (holdfast.leases join holdfast.runs on runs.id = leases.run_id)
            on not own.waits and leases.worker_id = %(worker_id)s::uuid and leases.claimed_by is null
        """,
        {"worker_id": worker_id},
        _given,
    )
