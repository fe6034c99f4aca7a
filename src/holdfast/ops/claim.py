"""Claim: take runs that are ready, each under a lease and its next attempt number."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.values import Claim, Position
from holdfast.ops.rescue import rescue
from holdfast.sql import leases, ready, waiting
from holdfast.sql.statement import Op


def claim(worker_id: str, positions: Sequence[Position], limit: int) -> Op[list[Claim]]:
    """Claim up to `limit` runs, looking in each queue from the given position on."""
    return (yield from ready.claim(worker_id, positions, limit))


def claim_by_id(worker_id: str, run_id: str, random: float) -> Op[Claim | None]:
    """Claim this run if nobody holds it. A lease that has passed is settled as LOST first."""
    dead = yield from leases.orphan(run_id)
    yield from rescue(dead, random)
    yield from waiting.promote(100)
    claimed = yield from ready.claim_one(worker_id, run_id)
    return claimed[0] if claimed else None


def promote(limit: int) -> Op[tuple[int, float | None]]:
    """Make runs ready whose time has come."""
    return (yield from waiting.promote(limit))
