"""Claim: lease ready runs, each with its next attempt number."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.values import Claim
from holdfast.ops.rescue import rescue
from holdfast.sql import locks, orphans, ready, rings, waiting
from holdfast.sql.statement import Op, as_operation

claim = as_operation(ready.claim)
find_blocked = as_operation(locks.blocked)
promote = as_operation(waiting.promote)
# For the RQ doorbell: ready runs whose message may be lost, and rows of workers that executed one run.
find_ready = as_operation(rings.ready)
is_claimable = as_operation(rings.claimable)
forget_single_workers = as_operation(rings.forget_single_workers)


def claim_by_id(worker_id: str, run_id: str, tasks: Sequence[str], random: float) -> Op[Claim | None]:
    """Claim this run if no worker holds it and its task is one of these.

    An expired lease is settled as LOST first.
    """
    dead = yield from orphans.of_run(run_id)
    yield from rescue(dead, random)
    yield from waiting.promote(100)
    claimed = yield from ready.claim_one(worker_id, run_id, tasks)
    return claimed[0] if claimed else None
