"""Orphans: leases whose worker has not renewed in time, and how a rescue settles their attempts."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.domain.reasons import ReasonCode
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.values import AttemptRef, Settlement
from holdfast.sql.statement import Statement, each


class Orphan(NamedTuple):
    """A lease whose worker is dead, with what is needed to decide whether its run is retried."""

    run_id: str
    number: int
    excused: int
    task: str
    policy: str | None
    crashes: int
    worker_id: str
    payload_hash: str
    begun: bool


_ORPHAN = """
        select leases.run_id::text, leases.number, leases.excused, runs.task, runs.policy::text,
               (select count(*) from holdfast.attempts where attempts.run_id = leases.run_id
                  and (attempts.status = 'LOST' or attempts.reason = 'crash')),
               leases.worker_id::text, encode(runs.payload_hash, 'hex'),
               not exists (select from holdfast.workers
                           where workers.id = leases.worker_id and workers.settled_at is not null)
        from holdfast.leases join holdfast.runs on runs.id = leases.run_id
        where not exists (select from holdfast.workers
                          where workers.id = leases.worker_id and workers.expires_at > holdfast.now())
"""


def listing(limit: int) -> Statement[list[Orphan]]:
    """Return leases whose worker has not renewed in time, oldest first. This is a hint: `rescue` checks again."""
    return Statement(_ORPHAN + "order by leases.claimed_at limit %(limit)s", {"limit": limit}, each(Orphan._make))


def of_run(run_id: str) -> Statement[list[Orphan]]:
    """Return this run's lease if its worker has not renewed in time."""
    return Statement(_ORPHAN + "and leases.run_id = %(run_id)s::uuid", {"run_id": run_id}, each(Orphan._make))


def not_started(orphan: Orphan) -> Settlement:
    """Return the settlement of a claim whose worker stopped before it started the attempt."""
    return Settlement(AttemptRef(orphan.run_id, orphan.number), AttemptStatus.CANCELLED, None, begun=False)


def lost(orphan: Orphan, outcome: Status | None, delay: float) -> Settlement:
    """Return the settlement of an attempt whose worker is dead."""
    return Settlement(
        ref=AttemptRef(orphan.run_id, orphan.number),
        status=AttemptStatus.LOST,
        outcome=outcome,
        task=orphan.task,
        elapsed=None,
        delay=delay,
        reason=ReasonCode.LOST,
        error={
            "class": "LeaseExpired",
            "message": f"worker {orphan.worker_id} stopped renewing its lease",
            "traceback": None,
        },
    )
