"""Events: what happened to a run, in order.

Most events are read off the rows that made them true: the run was submitted, an attempt was claimed, it ended, the run
was reopened. Only what leaves no such row is stored: a write refused by the fence, a cancel that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from holdfast.domain.values import AttemptRef
from holdfast.sql.statement import Statement, each, nothing, plain_array


def fenced(refs: Sequence[AttemptRef], reason: str) -> Statement[None]:
    """Record that attempts tried to write after their lease was gone."""
    return Statement(
        """
        insert into holdfast.events (run_id, at, attempt, type, reason)
        select told.run_id, holdfast.now(), told.number, 'FENCED', %(reason)s
        from unnest(%(run_ids)s::uuid[], %(numbers)s::integer[]) as told (run_id, number)
        join holdfast.runs on runs.id = told.run_id
        """,
        {
            "run_ids": plain_array([ref.run_id for ref in refs]),
            "numbers": plain_array([ref.number for ref in refs]),
            "reason": reason,
        },
        nothing,
    )


def cancel_requested(run_id: str, reason: str) -> Statement[None]:
    """Record that the running attempt was asked to stop."""
    return Statement(
        """
        insert into holdfast.events (run_id, at, attempt, type, reason)
        select leases.run_id, leases.cancel_requested_at, leases.number, 'CANCEL_REQUESTED', %(reason)s
        from holdfast.leases where leases.run_id = %(run_id)s::uuid
          and not exists (select from holdfast.events where events.run_id = leases.run_id
                          and events.attempt = leases.number and events.type = 'CANCEL_REQUESTED')
        """,
        {"run_id": run_id, "reason": reason},
        nothing,
    )


class EventRecord(NamedTuple):
    """One event. `seq` counts from 1 without a gap; `from_status` and `to_status` are the run's."""

    seq: int
    type: str
    from_status: str | None
    to_status: str | None
    reason: str | None
    at: datetime
    attempt: int


def of_run(run_id: str, after: int = 0) -> Statement[list[EventRecord]]:
    """The events of a run with `seq` greater than `after`."""
    return Statement(
        """
        with told (at, rank, attempt, type, from_status, to_status, reason) as (
            select created_at, 0, 0, 'SUBMITTED', null, 'PENDING', null
            from holdfast.runs where id = %(run_id)s::uuid
            union all
            select claimed_at, 1, number, 'CLAIMED', 'PENDING', 'RUNNING', null
            from holdfast.leases where run_id = %(run_id)s::uuid
            union all
            select claimed_at, 1, number, 'CLAIMED', 'PENDING', 'RUNNING', null
            from holdfast.attempts where run_id = %(run_id)s::uuid and number >= 1
            union all
            select at, 2, attempt, type, null, null, reason
            from holdfast.events where run_id = %(run_id)s::uuid
            union all
            select finished_at, 3, number,
                   case when outcome is not null then outcome
                        when reason in ('handed-back', 'unknown-task') then 'HANDED_BACK'
                        when status = 'LOST' then 'LOST' else 'RETRIED' end,
                   case when number >= 1 then 'RUNNING' else 'PENDING' end, coalesce(outcome, 'PENDING'),
                   coalesce(reason, error ->> 'class')
            from holdfast.attempts where run_id = %(run_id)s::uuid
            union all
            select reopened_at, 4, number, 'REOPENED', outcome, 'PENDING', 'by ' || reopened_by
            from holdfast.attempts where run_id = %(run_id)s::uuid and reopened_at is not null
        ), numbered as (
            select row_number() over (order by at, abs(attempt), rank) as seq, * from told
        )
        select seq, type, from_status, to_status, reason, holdfast.readable(at), greatest(attempt, 0)
        from numbered where seq > %(after)s order by seq
        """,
        {"run_id": run_id, "after": after},
        each(EventRecord._make),
    )
