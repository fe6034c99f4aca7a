"""Workers in the jobs API, and the health and metrics of the whole system."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

from holdfast import ops
from holdfast.domain.errors import BadInput, DatabaseUnreachable, Problem, SchemaMismatch
from holdfast.domain.ids import new_id, parse_id
from holdfast.domain.records import WorkerRecord
from holdfast.domain.values import WorkerInfo
from holdfast.sql.figures import Overview
from holdfast.verbs.caller import Caller
from holdfast.verbs.procedures import Procedure
from holdfast.verbs.verb import MakeOp, verb
from holdfast.verbs.workers import LOCKED_ROW, STATUSES


@verb(refused_in_transaction=LOCKED_ROW)
def register_worker(
    caller: Caller, /, hostname: str | None = None, pid: int | None = None, *, name: str | None = None, slots: int = 1
) -> MakeOp[WorkerRecord]:
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
        lease=timedelta(seconds=caller.settings.lease_seconds),
    )
    return partial(ops.register_worker, info)


@verb(refused_in_transaction=LOCKED_ROW)
def worker_heartbeat(caller: Caller, /, worker: object) -> MakeOp[WorkerRecord]:
    """Report that a worker is alive. Raises LeaseLost after a lease without a heartbeat: register the worker again."""
    return partial(ops.heartbeat, _id(worker))


@verb(refused_in_transaction=LOCKED_ROW)
def deregister_worker(caller: Caller, /, worker: object) -> MakeOp[None]:
    """Deregister a worker. Its runs can be rescued immediately."""
    return partial(ops.deregister_worker, _id(worker))


@verb()
def list_workers(caller: Caller, /, status: str | None = None) -> Procedure[list[WorkerRecord]]:
    """Return live workers, and those that stopped in the last day; `status` is active, idle, draining or stopped."""
    wanted = status.lower() if isinstance(status, str) else status
    if wanted not in (None, *STATUSES):
        raise BadInput(f"{status!r} is not a worker status; use {', '.join(STATUSES)}", [Problem("/status", "unknown")])
    found: list[WorkerRecord] = yield ops.list_workers
    # An idle worker is alive, and that is what most callers mean by "active".
    words = {None: STATUSES, "active": ("active", "idle")}.get(wanted, (wanted,))
    return [worker for worker in found if worker.status in words]


def _id(worker: object) -> str:
    found = parse_id(getattr(worker, "id", worker))
    if found is None:
        raise BadInput(f"{worker!r} is not the id of a worker", [Problem("/worker_id", "not an id")])
    return found


# A lease that expired longer ago than this should have been rescued.
STALE_AFTER = 30.0


@verb()
def health_check(caller: Caller, /) -> Procedure[dict[str, Any]]:
    """Return `{"healthy": bool, "checks": {"database", "workers", "stale_tasks"}}`: each check is True if it passes.

    The database responds and has the right schema; a worker is alive; no task of a dead worker is waiting to be
    rescued.
    """
    try:
        found: Overview = yield partial(ops.overview, STALE_AFTER)
    except (DatabaseUnreachable, SchemaMismatch):
        return unhealthy()
    checks = {"database": True, "workers": found.workers_alive > 0, "stale_tasks": found.stale_tasks == 0}
    return {"healthy": all(checks.values()), "checks": checks}


def unhealthy() -> dict[str, Any]:
    """The answer if the database cannot be reached."""
    return {"healthy": False, "checks": {"database": False, "workers": False, "stale_tasks": False}}


@verb()
def metrics(caller: Caller, /) -> MakeOp[dict[str, Any]]:
    """Return all metrics; see `ops.metrics`."""
    return ops.metrics
