"""Claim: take runs that are ready, each under a lease and its next attempt number."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.values import Claim, Position
from holdfast.ops.rescue import rescue
from holdfast.sql import jobs, leases, ready, waiting
from holdfast.sql.statement import Op


def claim(worker_id: str, positions: Sequence[Position], limit: int) -> Op[list[Claim]]:
    """Claim up to `limit` runs, looking in each queue from the given position on."""
    claims = yield from ready.claim(worker_id, positions, limit)
    yield from _start_jobs(claims)
    return claims


def claim_by_id(worker_id: str, run_id: str, random: float) -> Op[Claim | None]:
    """Claim this run if nobody holds it. A lease that has passed is settled as LOST first."""
    dead = yield from leases.orphan(run_id)
    yield from rescue(dead, random)
    yield from waiting.promote(100)
    claimed = yield from ready.claim_one(worker_id, run_id)
    yield from _start_jobs(claimed)
    return claimed[0] if claimed else None


def _start_jobs(claims: Sequence[Claim]) -> Op[None]:
    """A job starts with the first claim of one of its runs."""
    job_ids = {claim.job_id for claim in claims if claim.job_id is not None}
    if job_ids:
        yield from jobs.start(sorted(job_ids))


def promote(limit: int) -> Op[tuple[int, float | None]]:
    """Make runs ready whose time has come."""
    return (yield from waiting.promote(limit))
