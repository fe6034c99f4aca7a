"""Locks held by other transactions: which attempts cannot be ended without waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.sql.statement import Statement, each, nothing, plain_array


class Blocked(NamedTuple):
    """A running attempt that cannot be ended without waiting; `with_job` if this applies to all runs of its job."""

    run_id: str
    job_id: str | None
    with_job: bool


def blocked(run_ids: Sequence[str]) -> Statement[list[Blocked]]:
    """Return the leased runs whose lease, job, map or dependents another transaction has locked.

    This never waits, and is only a hint: locks come and go.
    """
    return Statement(
        """
        with requested as (
            select run_id, job_id, map_id from holdfast.leases where run_id = any(%(run_ids)s::uuid[])
        ), free_lease as (
            select run_id from holdfast.leases where run_id = any(%(run_ids)s::uuid[]) for update skip locked
        ), free_job as (
            select id from holdfast.jobs where id in (select job_id from requested) for update skip locked
        ), free_map as (
            select id from holdfast.maps where id in (select map_id from requested) for update skip locked
        ), dependent as (
            select requested.run_id as on_id, waiting.run_id
            from requested
            join holdfast.dependencies on dependencies.on_id in (requested.run_id, requested.map_id)
            join holdfast.waiting on waiting.run_id = dependencies.run_id and waiting.blockers > 0
        ), free_dependent as (
            select run_id from holdfast.waiting where run_id in (select run_id from dependent) for update skip locked
        ), judged as (
            select requested.run_id, requested.job_id,
                   (requested.job_id is not null and requested.job_id not in (select id from free_job))
                   or (requested.map_id is not null and requested.map_id not in (select id from free_map)) as with_job,
                   requested.run_id not in (select run_id from free_lease)
                   or exists (select from dependent where dependent.on_id = requested.run_id
                              and dependent.run_id not in (select run_id from free_dependent)) as alone
            from requested
        )
        select run_id::text, job_id::text, with_job from judged where with_job or alone
        """,
        {"run_ids": plain_array(run_ids)},
        each(Blocked._make),
    )


def wait_briefly() -> Statement[None]:
    """Limit lock waits in this transaction to a moment. The worker repeats the transaction later."""
    return Statement("select from set_config('lock_timeout', '10ms', true)", {}, nothing, together=True)
