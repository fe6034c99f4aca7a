"""Claim: lease ready runs, each with its next attempt number."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.values import Claim, Position
from holdfast.ops.rescue import rescue
from holdfast.sql import locks, orphans, ready, waiting
from holdfast.sql.locks import Blocked
from holdfast.sql.statement import Op


def claim(worker_id: str, positions: Sequence[Position], tasks: Sequence[str], limit: int) -> Op[list[Claim]]:
    """Claim up to `limit` runs of these tasks, from the given position in each queue."""
    return (yield from ready.claim(worker_id, positions, tasks, limit))


def claim_by_id(worker_id: str, run_id: str, tasks: Sequence[str], random: float) -> Op[Claim | None]:
    """Claim this run if no worker holds it and its task is one of these.

    An expired lease is settled as LOST first.
    """
    dead = yield from orphans.of_run(run_id)
    yield from rescue(dead, random)
    yield from waiting.promote(100)
    claimed = yield from ready.claim_one(worker_id, run_id, tasks)
    return claimed[0] if claimed else None


def find_blocked(run_ids: Sequence[str]) -> Op[list[Blocked]]:
    """Return the leased runs that cannot be ended without waiting for another transaction. This is only a hint."""
    return (yield from locks.blocked(run_ids))


def promote(limit: int) -> Op[tuple[int, float | None]]:
    """Make due runs ready. Return their number, and the seconds until the next run is due."""
    return (yield from waiting.promote(limit))
