"""Ring: find ready runs whose doorbell message may be lost, and delete old worker rows. No run is changed."""

from __future__ import annotations

from holdfast.sql import rings
from holdfast.sql.rings import ReadyRun
from holdfast.sql.statement import Op


def find_ready(per_queue: int, limit: int = 5000) -> Op[list[ReadyRun]]:
    """Return the first ready runs of each queue."""
    return (yield from rings.ready(per_queue, limit))


def is_claimable(run_id: str) -> Op[bool]:
    """Return whether a claim of this run may succeed. This is only a hint: only a claim can tell."""
    return (yield from rings.claimable(run_id))


def forget_single_workers(hours: float = 24.0, limit: int = 5000) -> Op[int]:
    """Delete old workers that were created for one run."""
    return (yield from rings.forget_single_workers(hours, limit))
