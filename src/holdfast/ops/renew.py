"""Renew: extend a worker's leases, and return which of its runs have to stop."""

from __future__ import annotations

from holdfast.domain.errors import LeaseLost
from holdfast.domain.values import Renewal
from holdfast.sql import workers
from holdfast.sql.statement import Op


def renew(worker_id: str, completed: int = 0, failed: int = 0) -> Op[Renewal]:
    """Extend the worker's leases. Raises LeaseLost if they have expired: the worker must stop its runs."""
    renewal = yield from workers.renew(worker_id, completed, failed)
    if renewal is None:
        raise LeaseLost(
            f"worker {worker_id} did not renew in time: its leases have expired, and other workers may have its runs"
        )
    return renewal
