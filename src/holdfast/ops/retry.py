"""Retry: a person reopens a run that FAILED or was CANCELLED. The only way out of a final state."""

from __future__ import annotations

from holdfast.domain.errors import RunEnded, RunNotFound
from holdfast.domain.values import RunRecord
from holdfast.sql import attempts, runs
from holdfast.sql.statement import Op


def retry(run_id: str, by: str) -> Op[RunRecord]:
    """Reopen the run: PENDING, due now, its attempts budget whole again, its attempt numbers going on."""
    reopened = yield from attempts.reopen(run_id, by)
    run = yield from runs.read(run_id)
    if run is None:
        raise RunNotFound(f"no run has the id {run_id}")
    if not reopened:
        raise RunEnded(
            f"run {run_id} is {run.status}; only a FAILED or CANCELLED run can be retried. "
            "Submit a new run to compute it again."
        )
    return run
