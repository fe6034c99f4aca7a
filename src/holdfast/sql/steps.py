"""Durable steps: the result of a step is stored for later attempts of the run."""

from __future__ import annotations

from holdfast.domain.values import AttemptRef
from holdfast.sql.leases import HELD
from holdfast.sql.statement import Statement, count, first


def find(run_id: str, name: str) -> Statement[str | None]:
    """Return the stored result of a step, or None."""
    return Statement(
        "select result::text from holdfast.steps where run_id = %(run_id)s::uuid and name = %(name)s",
        {"run_id": run_id, "name": name},
        first(lambda row: str(row[0])),
    )


def record(worker_id: str, ref: AttemptRef, name: str, result: str) -> Statement[int]:
    """Store the result of a step, if the attempt still holds its lease. An existing result is kept.

    The lease is locked, so it cannot end between the check and the write.
    """
    return Statement(
        """
        with held as (
            select leases.run_id, leases.number from holdfast.leases
            where leases.run_id = %(run_id)s::uuid and leases.number = %(number)s
        """
        + HELD
        + """
            for update of leases
        ), kept as (
            insert into holdfast.steps (run_id, name, attempt, recorded_at, result)
            select run_id, %(name)s, number, holdfast.now(), %(result)s::json from held
            on conflict (run_id, name) do nothing
        )
        select count(*) from held
        """,
        {"worker_id": worker_id, "run_id": ref.run_id, "number": ref.number, "name": name, "result": result},
        count,
    )
