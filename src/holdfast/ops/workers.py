"""External workers: register, send heartbeats, and deregister."""

from __future__ import annotations

from holdfast.domain.errors import HoldfastError
from holdfast.domain.records import WorkerRecord
from holdfast.domain.values import WorkerInfo
from holdfast.ops.renew import renew
from holdfast.sql import workers
from holdfast.sql.statement import Op


def register_worker(info: WorkerInfo) -> Op[WorkerRecord]:
    yield from workers.register(info)
    return (yield from _get(info.id))


def heartbeat(worker_id: str) -> Op[WorkerRecord]:
    """Extend the worker's leases. Raises LeaseLost if they have expired."""
    yield from renew(worker_id)
    return (yield from _get(worker_id))


def deregister_worker(worker_id: str) -> Op[None]:
    yield from workers.deregister(worker_id)


def list_workers() -> Op[list[WorkerRecord]]:
    return (yield from workers.listing())


def _get(worker_id: str) -> Op[WorkerRecord]:
    found = yield from workers.read(worker_id)
    if found is None:
        raise HoldfastError(f"no worker has the id {worker_id}")
    return found
