"""Ring: find the runs whose message a doorbell may have lost, and clean up behind it. Nothing here changes a run."""

from __future__ import annotations

from holdfast.sql import rings
from holdfast.sql.rings import ReadyRun
from holdfast.sql.statement import Op


def find_ready(per_queue: int, limit: int = 5000) -> Op[list[ReadyRun]]:
    """The first runs of each queue that wait to be claimed."""
    return (yield from rings.ready(per_queue, limit))


def is_claimable(run_id: str) -> Op[bool]:
    """Whether it is worth trying to claim this run. Only a hint: the claim itself decides."""
    return (yield from rings.claimable(run_id))


def forget_single_workers(hours: float = 24.0, limit: int = 5000) -> Op[int]:
    """Forget workers that lived for one run."""
    return (yield from rings.forget_single_workers(hours, limit))
