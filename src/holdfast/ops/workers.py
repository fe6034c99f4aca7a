"""Workers: renewing their leases, and registering and deregistering external workers."""

from __future__ import annotations

from holdfast.domain.errors import HoldfastError, LeaseLost
from holdfast.domain.records import WorkerRecord
from holdfast.domain.values import Renewal, WorkerInfo
from holdfast.sql import workers
from holdfast.sql.statement import Op, as_operation

deregister_worker = as_operation(workers.deregister)
list_workers = as_operation(workers.listing)


def renew(worker_id: str, completed: int = 0, failed: int = 0) -> Op[Renewal]:
    """Extend the worker's leases. Raises LeaseLost if they have expired: the worker must stop its runs."""
    renewal = yield from workers.renew(worker_id, completed, failed)
    if renewal is None:
        raise LeaseLost(
            f"worker {worker_id} did not renew in time: its leases have expired, and other workers may have its runs"
        )
    return renewal


def drain_worker(worker_id: str) -> Op[bool]:
    """Request that a worker claims no more runs, and stops when its runs have ended. Return False if it is dead."""
    return bool((yield from workers.drain(worker_id)))


def register_worker(info: WorkerInfo) -> Op[WorkerRecord]:
    yield from workers.register(info)
    return (yield from _get(info.id))


def heartbeat(worker_id: str) -> Op[WorkerRecord]:
    """Extend the worker's leases. Raises LeaseLost if they have expired."""
    yield from renew(worker_id)
    return (yield from _get(worker_id))


def _get(worker_id: str) -> Op[WorkerRecord]:
    found = yield from workers.read(worker_id)
    if found is None:
        raise HoldfastError(f"no worker has the id {worker_id}")
    return found
