"""Locks that others hold: which endings would have to wait for another transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.sql.statement import Statement, each, nothing, plain_array


class Blocked(NamedTuple):
    """A running attempt whose end would have to wait; `with_job` if those of all other runs of its job would, too."""

    run_id: str
    job_id: str | None
    with_job: bool


def blocked(run_ids: Sequence[str]) -> Statement[list[Blocked]]:
    """Those of these leased runs whose end another transaction holds up: by their lease, job, map or dependents.

    It waits for none of them, and is only a hint: locks come and go.
    """
    return Statement(
        """
        with asked as (
            select run_id, job_id, map_id from holdfast.leases where run_id = any(%(run_ids)s::uuid[])
        ), free_lease as (
            select run_id from holdfast.leases where run_id = any(%(run_ids)s::uuid[]) for update skip locked
        ), free_job as (
            select id from holdfast.jobs where id in (select job_id from asked) for update skip locked
        ), free_map as (
            select id from holdfast.maps where id in (select map_id from asked) for update skip locked
        ), dependent as (
            select asked.run_id as on_id, waiting.run_id
            from asked
            join holdfast.dependencies on dependencies.on_id in (asked.run_id, asked.map_id)
            join holdfast.waiting on waiting.run_id = dependencies.run_id and waiting.blockers > 0
        ), free_dependent as (
            select run_id from holdfast.waiting where run_id in (select run_id from dependent) for update skip locked
        ), judged as (
            select asked.run_id, asked.job_id,
                   (asked.job_id is not null and asked.job_id not in (select id from free_job))
                   or (asked.map_id is not null and asked.map_id not in (select id from free_map)) as with_job,
                   asked.run_id not in (select run_id from free_lease)
                   or exists (select from dependent where dependent.on_id = asked.run_id
                              and dependent.run_id not in (select run_id from free_dependent)) as alone
            from asked
        )
        select run_id::text, job_id::text, with_job from judged where with_job or alone
        """,
        {"run_ids": plain_array(run_ids)},
        each(Blocked._make),
    )


def wait_briefly() -> Statement[None]:
    """Let the transaction that begins here wait only a moment for locks: it is one of many attempts."""
    return Statement("select from set_config('lock_timeout', '10ms', true)", {}, nothing, together=True)
