"""Health and metrics of the whole system, with the names of the jobs API."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast import ops
from holdfast.domain.errors import DatabaseUnreachable, SchemaMismatch
from holdfast.sql.figures import Overview
from holdfast.verbs.caller import Caller
from holdfast.verbs.procedures import Procedure
from holdfast.verbs.verb import MakeOp, verb

# A lease that expired longer ago than this should have been rescued.
STALE_AFTER = 30.0


@verb()
def health_check(caller: Caller, /) -> Procedure[dict[str, Any]]:
    """`{"healthy": bool, "checks": {"database", "workers", "stale_tasks"}}`: each check is True if it passes.

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
