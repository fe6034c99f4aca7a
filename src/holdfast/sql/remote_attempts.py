"""Attempts that other processes execute on a cluster, supervised by any worker with that executor.

The worker that supervises an attempt does not hold its lease. It may only add information to it, and each of its writes
names the job and how much was copied before, so that no line is copied twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from holdfast.domain.execution import RemoteAttempt
from holdfast.domain.values import AttemptRef
from holdfast.sql.statement import Statement, count, each, plain_array, text_array


def _remote(row: Sequence[Any]) -> RemoteAttempt:
    run_id, number, *rest = row
    return RemoteAttempt(AttemptRef(run_id, number), *rest)


def look_after(address: str, every: float, limit: int) -> Statement[list[RemoteAttempt]]:
    """Choose attempts on this cluster that no worker has checked for `every` seconds, each for one worker at a time."""
    return Statement(
        """
        with due as (
            select leases.run_id, leases.number from holdfast.leases
            where leases.claimed_by is not null and leases.details->>'ray_address' = %(address)s
              and coalesce((leases.details->>'looked_at')::timestamptz, '-infinity')
                  < holdfast.now() - %(every)s * interval '1 second'
            limit %(limit)s
            for no key update skip locked
        ), looked as (
            update holdfast.leases
            set details = (leases.details::jsonb || jsonb_build_object('looked_at', holdfast.now()))::json
            from due where leases.run_id = due.run_id and leases.number = due.number
            returning leases.*
        )
        select run_id::text, number, details->>'ray_submission_id', coalesce((details->>'log_copied')::integer, 0),
               extract(epoch from holdfast.now() - cancel_requested_at)::float8, details->>'ray_node_id'
        from looked
        """,
        {"address": address, "every": every, "limit": limit},
        each(_remote),
    )


def note(
    attempt: RemoteAttempt, copied: int, lines: Sequence[tuple[str, str]], details: Mapping[str, Any]
) -> Statement[int]:
    """Add lines, each with its level, to an attempt's log, unless it has ended or another worker has copied them."""
    return Statement(
        """
        with noted as (
            update holdfast.leases
            set details = (leases.details::jsonb || %(details)s::jsonb
                           || jsonb_build_object('log_copied', %(copied)s::integer))::json
            where leases.run_id = %(run_id)s::uuid and leases.number = %(number)s
              and leases.details->>'ray_submission_id' = %(submission_id)s
              and coalesce((leases.details->>'log_copied')::integer, 0) = %(before)s
            returning leases.run_id, leases.number
        ), added as (
            insert into holdfast.logs (run_id, at, attempt, level, message)
            select noted.run_id, holdfast.now(), noted.number, given.level, given.message
            from noted cross join unnest(%(levels)s::text[], %(messages)s::text[]) with ordinality
                 as given (level, message, place)
            order by given.place
        )
        select count(*) from noted
        """,
        {
            "run_id": attempt.ref.run_id,
            "number": attempt.ref.number,
            "submission_id": attempt.submission_id,
            "before": attempt.log_copied,
            "copied": copied,
            "levels": text_array([level for level, _ in lines]),
            "messages": text_array([message for _, message in lines]),
            "details": orjson.dumps(details).decode(),
        },
        count,
    )


def over(refs: Sequence[AttemptRef]) -> Statement[set[AttemptRef]]:
    """Return the attempts that have ended. Attempts of runs that are not in this database are left out."""
    return Statement(
        """
        select given.run_id::text, given.number
        from unnest(%(run_ids)s::uuid[], %(numbers)s::integer[]) as given (run_id, number)
        join holdfast.runs on runs.id = given.run_id
        where not exists (select from holdfast.leases
                          where leases.run_id = given.run_id and leases.number = given.number)
        """,
        {"run_ids": plain_array([ref.run_id for ref in refs]), "numbers": plain_array([ref.number for ref in refs])},
        lambda found: {AttemptRef(*row) for row in found},
    )
