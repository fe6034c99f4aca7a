"""Documents for a token that may change runs but not read them. They show only what the caller sent, and the outcome.

The documents have their usual fields, so that clients can parse them as usual. Fields that may not be shown are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.documents.others import job_document
from holdfast.documents.runs import run_document
from holdfast.domain.canonical import canonicalize
from holdfast.domain.jobs import JobRecord
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord

NO_PARAMETERS_HASH = canonicalize({})[1]

UNTOUCHED: dict[str, Any] = {
    **dict.fromkeys(("started_at", "finished_at", "cancel_requested_at", "reason")),
    **dict.fromkeys(("completed_tasks", "failed_tasks", "cancelled_tasks"), 0),
}


def restricted_run_document(run: RunRecord) -> dict[str, Any]:
    """A run that the caller has changed: only the id, which the caller sent, and the status."""
    return run_document(RunRecord(run.id, "", run.status, {}, NO_PARAMETERS_HASH, "", 0, run.created_at))


def added_run_document(run: RunRecord, tags: Sequence[str]) -> dict[str, Any]:
    """A task that the caller has added to a job. It may have existed before, and is shown as it was created."""
    made = RunRecord(
        run.id,
        run.task,
        Status.PENDING,
        run.parameters,
        run.payload_hash,
        run.queue,
        run.priority,
        run.created_at,
        run.run_after,
        max_attempts=run.max_attempts,
        job_id=run.job_id,
        tags=tuple(tags),
    )
    return run_document(made)


def restricted_job_document(job: JobRecord) -> dict[str, Any]:
    """A job that the caller has changed."""
    hidden = replace(job, name="", description=None, deadline_at=None, total=0, submitted_by=None)
    return job_document(hidden) | UNTOUCHED


def created_job_document(job: JobRecord) -> dict[str, Any]:
    """A job that the same request created before; shown as it was then."""
    return job_document(job) | UNTOUCHED | {"status": str(Status.PENDING)}
