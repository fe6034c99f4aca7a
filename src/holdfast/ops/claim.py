"""Claim: take runs that are ready, each under a lease and its next attempt number."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.values import Claim, Position
from holdfast.ops.rescue import rescue
from holdfast.sql import leases, locks, ready, waiting
from holdfast.sql.locks import Blocked
from holdfast.sql.statement import Op


def claim(worker_id: str, positions: Sequence[Position], tasks: Sequence[str], limit: int) -> Op[list[Claim]]:
    """Claim up to `limit` runs of these tasks, looking in each queue from the given position on."""
    return (yield from ready.claim(worker_id, positions, tasks, limit))


def claim_by_id(worker_id: str, run_id: str, tasks: Sequence[str], random: float) -> Op[Claim | None]:
    """Claim this run if no worker holds it and it is of one of these tasks.

    A lease that has passed is settled as LOST first.
    """
    dead = yield from leases.orphan(run_id)
    yield from rescue(dead, random)
    yield from waiting.promote(100)
    claimed = yield from ready.claim_one(worker_id, run_id, tasks)
    return claimed[0] if claimed else None


def find_blocked(run_ids: Sequence[str]) -> Op[list[Blocked]]:
    """Return the leased runs whose end would have to wait for another transaction. Only a hint."""
    return (yield from locks.blocked(run_ids))


def promote(limit: int) -> Op[tuple[int, float | None]]:
    """Make runs ready whose time has come."""
    return (yield from waiting.promote(limit))
