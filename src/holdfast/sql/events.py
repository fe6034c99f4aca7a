"""Events: what happened to a run, in order.

Most events are read off the rows that made them true: the run was submitted, an attempt was claimed, it ended, the run
was reopened. Only what leaves no such row is stored: a write refused by the fence, a cancel that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from holdfast.domain.records import EventRecord
from holdfast.domain.values import AttemptRef
from holdfast.sql.statement import Statement, each, nothing, plain_array


def hold_runs(run_ids: Sequence[str]) -> Statement[set[str]]:
    """Keep these runs from moving on until this transaction ends; tells which are held. Never waits."""
    return Statement(
        """
        with queued as (
            select run_id from holdfast.ready where run_id = any(%(run_ids)s::uuid[])
            order by run_id for no key update skip locked
        ), idle as (
            select run_id from holdfast.waiting where run_id = any(%(run_ids)s::uuid[])
            order by run_id for no key update skip locked
        ), running as (
            select run_id from holdfast.leases where run_id = any(%(run_ids)s::uuid[])
            order by run_id for no key update skip locked
        ), ended as (
            select run_id from holdfast.attempts
            where run_id = any(%(run_ids)s::uuid[]) and outcome is not null and reopened_at is null
            order by run_id for no key update skip locked
        )
        select run_id::text from queued union all select run_id::text from idle
        union all select run_id::text from running union all select run_id::text from ended
        """,
        {"run_ids": plain_array(run_ids)},
        lambda found: {str(row[0]) for row in found},
        together=True,
    )


def fenced(refs: Sequence[AttemptRef], reason: str, held: AbstractSet[str]) -> Statement[None]:
    """Record that attempts tried to write after their lease was gone.

    The event of a run that is `held` comes after what has happened to it so far: nothing more can, until this is
    committed. Where another transaction is moving the run on, the event comes after the run's next ending.
    """
    return Statement(
        """
        insert into holdfast.events (run_id, at, attempt, type, reason, position)
        select told.run_id, holdfast.now(), told.number, 'FENCED', %(reason)s,
               case when told.run_id = any(%(held)s::uuid[]) then
                   1 + (select count(*) from holdfast.leases where leases.run_id = told.run_id)
                     + (select count(*) + count(*) filter (where number >= 1) + count(reopened_at)
                        from holdfast.attempts where attempts.run_id = told.run_id)
                     + (select count(*) from holdfast.events
                        where events.run_id = told.run_id and events.type <> 'FENCED') end
        from unnest(%(run_ids)s::uuid[], %(numbers)s::integer[]) as told (run_id, number)
        join holdfast.runs on runs.id = told.run_id
        """,
        {
            "run_ids": plain_array([ref.run_id for ref in refs]),
            "numbers": plain_array([ref.number for ref in refs]),
            "reason": reason,
            "held": plain_array(sorted(held)),
        },
        nothing,
        together=True,
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


def of_run(run_id: str, after: int = 0) -> Statement[list[EventRecord]]:
    """The events of a run with `seq` greater than `after`.

    A run moves on by one transaction at a time, so its moves have an order in which nothing is ever put between two
    others: by attempt, and within an attempt claimed, taken over, asked to stop, ended, reopened. Endings without an
    attempt come after the attempts that were claimed before them. Times do not decide: a statement that had to wait has
    an earlier one than what it waited for. A FENCED event comes after as many moves as it says; if it does not say,
    after the first ending that was in force at its time or later, and is not shown before.
    """
    return Statement(
        """
        with moves (at, attempt, rank, turn, number, type, from_status, to_status, reason, reopened_at) as (
            select created_at, 0, 0, 0, 0, 'SUBMITTED', null, 'PENDING', null, null::timestamptz
            from holdfast.runs where id = %(run_id)s::uuid
            union all
            select claimed_at, number, 1, 0, number, 'CLAIMED', 'PENDING', 'RUNNING', null, null
            from holdfast.leases where run_id = %(run_id)s::uuid
            union all
            select claimed_at, number, 1, 0, number, 'CLAIMED', 'PENDING', 'RUNNING', null, null
            from holdfast.attempts where run_id = %(run_id)s::uuid and number >= 1
            union all
            select at, attempt, 2, case type when 'TAKEN_OVER' then 0 else 1 end, attempt, type, null, null, reason,
                   null
            from holdfast.events where run_id = %(run_id)s::uuid and type <> 'FENCED'
            union all
            select finished_at, past.attempt, past.rank, past.turn, number,
                   case when outcome is not null then outcome
                        when reason in ('handed-back', 'unknown-task') then 'HANDED_BACK'
                        when status = 'LOST' then 'LOST' else 'RETRIED' end,
                   case when number >= 1 then 'RUNNING' else 'PENDING' end, coalesce(outcome, 'PENDING'),
                   coalesce(reason, error ->> 'class'), reopened_at
            from holdfast.attempts cross join lateral (
                select attempts.number, 3, 0 where attempts.number >= 1
                union all
                select coalesce(max(before.number), 0), 5, -2 * attempts.number from holdfast.attempts as before
                where before.run_id = %(run_id)s::uuid and before.number >= 1
                  and before.claimed_at <= attempts.finished_at
                having attempts.number < 1) as past (attempt, rank, turn)
            where run_id = %(run_id)s::uuid
        ), story as (
            select at, attempt, rank, turn, number, type, from_status, to_status, reason, reopened_at from moves
            union all
            select reopened_at, attempt, case rank when 3 then 4 else rank end, turn + 1, number, 'REOPENED', to_status,
                   'PENDING', 'by ' || reopened.by, null
            from moves join lateral (
                select reopened_by from holdfast.attempts
                where run_id = %(run_id)s::uuid and attempts.number = moves.number) as reopened (by) on true
            where reopened_at is not null
        ), placed as (
            select row_number() over (order by attempt, rank, turn) as place, * from story
        ), told as (
            select place, 0 as late, at, type, from_status, to_status, reason, number from placed
            union all
            select coalesce(events.position, next.place), 1, events.at, events.type, null, null, events.reason,
                   events.attempt
            from holdfast.events
            left join lateral (
                select min(placed.place) as place from placed
                where placed.to_status in ('SUCCEEDED', 'FAILED', 'CANCELLED')
                  and coalesce(placed.reopened_at > events.at, true)) as next on events.position is null
            where events.run_id = %(run_id)s::uuid and events.type = 'FENCED'
              and coalesce(events.position, next.place) is not null
        ), numbered as (
            select row_number() over (order by place, late, at, number) as seq, * from told
        )
        select seq, type, from_status, to_status, reason, holdfast.readable(at), greatest(number, 0)
        from numbered where seq > %(after)s order by seq
        """,
        {"run_id": run_id, "after": after},
        each(EventRecord._make),
    )
