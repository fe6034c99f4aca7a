"""Workers in the jobs API: register, heartbeat, deregister, list."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from functools import partial
from importlib.metadata import version

from holdfast import ops
from holdfast.domain.errors import BadInput, Problem
from holdfast.domain.ids import new_id, parse_id
from holdfast.domain.records import WorkerRecord
from holdfast.domain.values import WorkerInfo
from holdfast.jobs.here import Here
from holdfast.jobs.procedures import Procedure

STATUSES = ("active", "idle", "draining", "stopped")


def register_worker(
    here: Here, hostname: str | None = None, pid: int | None = None, *, name: str | None = None, slots: int = 1
) -> Procedure[WorkerRecord]:
    """Register a worker that will send heartbeats. It gets a new id, even if the name was used before.

    Workers started with `holdfast worker` register themselves.
    """
    hostname, pid = hostname or socket.gethostname(), os.getpid() if pid is None else pid
    info = WorkerInfo(
        id=new_id(),
        hostname=hostname,
        pid=pid,
        name=name or f"{hostname}:{pid}",
        executor="external",
        version=version("holdfast"),
        slots=slots,
        lease=timedelta(seconds=here.settings.lease_seconds),
    )
    record: WorkerRecord = yield partial(ops.register_worker, info)
    return record


def worker_heartbeat(here: Here, worker: object) -> Procedure[WorkerRecord]:
    """Record a heartbeat. Raises LeaseLost if there was none for a lease: the worker must register again."""
    record: WorkerRecord = yield partial(ops.heartbeat, _id(worker))
    return record


def deregister_worker(here: Here, worker: object) -> Procedure[None]:
    """Deregister a worker. Its runs can be rescued immediately."""
    yield partial(ops.deregister_worker, _id(worker))


def list_workers(here: Here, status: str | None = None) -> Procedure[list[WorkerRecord]]:
    """Return live workers, and those that stopped in the last day; `status` is active, idle, draining or stopped."""
    wanted = status.lower() if isinstance(status, str) else status
    if wanted not in (None, *STATUSES):
        raise BadInput(f"{status!r} is not a worker status; {', '.join(STATUSES)}", [Problem("/status", "unknown")])
    found: list[WorkerRecord] = yield ops.list_workers
    # An idle worker is also active.
    words = {None: STATUSES, "active": ("active", "idle")}.get(wanted, (wanted,))
    return [worker for worker in found if worker.status in words]


def _id(worker: object) -> str:
    found = parse_id(getattr(worker, "id", worker))
    if found is None:
        raise BadInput(f"{worker!r} is not the id of a worker", [Problem("/worker_id", "not an id")])
    return found
