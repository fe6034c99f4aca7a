"""Events: what happened to a run, in order.

Most events are derived from the rows that record them: the run was submitted, an attempt was claimed or ended, the run
was reopened. Only events that leave no such row are stored: a write rejected by the fence, a cancel request,
and a pending run that was postponed.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from holdfast.domain.records import EventRecord
from holdfast.domain.values import AttemptRef
from holdfast.sql.statement import Statement, each, nothing, plain_array

# How many transitions a run has had. No more can happen while this transaction holds the run.
_SO_FAR = """
                   1 + (select count(*) from holdfast.leases where leases.run_id = given.run_id)
                     + (select count(*) + count(*) filter (where number >= 1) + count(reopened_at)
                        from holdfast.attempts where attempts.run_id = given.run_id)
                     + (select count(*) from holdfast.events
                        where events.run_id = given.run_id and events.type in ('CANCEL_REQUESTED', 'TAKEN_OVER'))
"""


def hold_runs(run_ids: Sequence[str]) -> Statement[set[str]]:
    """Lock these runs in their current state, without waiting, and return those that could be locked."""
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
    """Record that attempts tried to write after they had lost their lease.

    For a run that is `held`, the event comes after all events so far; no more can happen until this commits. If another
    transaction is changing the run, the event comes after the run's next end.
    """
    return Statement(
        """
        insert into holdfast.events (run_id, at, attempt, type, reason, position)
        select given.run_id, holdfast.now(), given.number, 'FENCED', %(reason)s,
               case when given.run_id = any(%(held)s::uuid[]) then"""
        + _SO_FAR
        + """end
        from unnest(%(run_ids)s::uuid[], %(numbers)s::integer[]) as given (run_id, number)
        join holdfast.runs on runs.id = given.run_id
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
    """Record that cancellation of the running attempt was requested."""
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


def postponed(run_id: str, by: str) -> Statement[None]:
    """Record that a run was postponed, in the transaction that did it."""
    return Statement(
        """
        insert into holdfast.events (run_id, at, attempt, type, reason, position)
        select given.run_id, holdfast.now(), given.number - 1, 'POSTPONED',
               to_char(given.due_at at time zone 'UTC', '"until "YYYY-MM-DD HH24:MI:SS "UTC by "') || %(by)s,"""
        + _SO_FAR
        + """from holdfast.waiting as given where given.run_id = %(run_id)s::uuid
        """,
        {"run_id": run_id, "by": by},
        nothing,
        together=True,
    )


def of_run(run_id: str, after: int = 0) -> Statement[list[EventRecord]]:
    """Return the events of a run with `seq` greater than `after`.

    Only one transaction at a time changes a run, so its transitions have a stable order: by attempt, and within an
    attempt claimed, taken over, cancel requested, ended, reopened. A run that ends without an attempt ends after the
    attempts claimed before. Times do not determine the order: a statement that had to wait has an earlier time than the
    one it waited for. A FENCED or POSTPONED event comes after as many transitions as its `position` says. A FENCED
    event without one comes after the first end that was in force at its time or later, and is not shown before that.

    A recorded time is when a statement began, and its event happened then or later. So an event is never shown as
    earlier than the one before it: it has that one's time instead. A FENCED event that comes long after the refusal
    names the time of the refusal in its reason.
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
            from holdfast.events
            where run_id = %(run_id)s::uuid and type in ('CANCEL_REQUESTED', 'TAKEN_OVER')
            union all
            select finished_at, past.attempt, past.rank, past.turn, number,
                   case when outcome is not null then outcome
                        when reason in ('handed-back', 'unknown-task') then 'HANDED_BACK'
                        when reason = 'postponed' then 'POSTPONED'
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
        ), complete as (
            select place, 0 as late, at, type, from_status, to_status, reason, number from placed
            union all
            select coalesce(events.position, next.place), 1, events.at, events.type, null, null, events.reason,
                   events.attempt
            from holdfast.events
            left join lateral (
                select min(placed.place) as place from placed
                where placed.to_status in ('SUCCEEDED', 'FAILED', 'CANCELLED')
                  and coalesce(placed.reopened_at > events.at, true)) as next on events.position is null
            where events.run_id = %(run_id)s::uuid and events.type in ('FENCED', 'POSTPONED')
              and coalesce(events.position, next.place) is not null
        ), numbered as (
            select row_number() over following as seq, max(at) over following as shown_at, * from complete
            window following as (order by place, late, at, number)
        )
        select seq, type, from_status, to_status,
               case when type = 'FENCED' and at < shown_at
                    then reason || to_char(at at time zone 'UTC', '", at" YYYY-MM-DD HH24:MI:SS.US "UTC"')
                    else reason end,
               holdfast.readable(shown_at), greatest(number, 0)
        from numbered where seq > %(after)s order by seq
        """,
        {"run_id": run_id, "after": after},
        each(EventRecord._make),
    )
