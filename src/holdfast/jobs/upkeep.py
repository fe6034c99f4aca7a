"""Upkeep of jobs: bounded services that every worker runs, safe to run concurrently.

They stop jobs past their deadline, continue interrupted stops, end jobs that were kept open too long, correct wrong
counts of dependencies, and remove the temporary resources of jobs that have ended.
"""

from __future__ import annotations

from functools import partial

import orjson

from holdfast import ops
from holdfast.domain.errors import JobEnded
from holdfast.domain.states import Status
from holdfast.jobs.resources import remove
from holdfast.ops.depend import FIRST
from holdfast.sql.resources import Resource
from holdfast.sql.stopping import Stopping
from holdfast.verbs.procedures import Elsewhere, Procedure

ERROR_LENGTH = 2000


def stop_overdue_jobs() -> Procedure[int]:
    """Stop jobs past their deadline, and continue interrupted stops. Return how many."""
    found: list[Stopping] = yield ops.jobs_to_stop
    for job in found:
        if not job.marked:
            try:
                yield partial(ops.stop_job, job.id, Status.FAILED, job.reason)
            except JobEnded:
                continue
        done = False
        while not done:
            done, _ = yield partial(ops.stop_some, job.id, job.reason)
    return len(found)


def end_held_jobs() -> Procedure[int]:
    """End jobs that were kept open for a join that was never added. Return how many."""
    ended: int = yield ops.end_held_jobs
    return ended


def heal_dependencies() -> Procedure[int]:
    """Decide about waiting runs whose count of dependencies is wrong. Return how many."""
    healed = 0
    after: str | None = FIRST
    while after is not None:
        amount, after = yield partial(ops.heal_dependencies, after)
        healed += amount
    return healed


def remove_resources() -> Procedure[int]:
    """Remove the temporary resources of ended jobs. Return how many. Failed removals are retried later."""
    found: list[Resource] = yield ops.resources_to_remove
    removed = 0
    for resource in found:
        error = None
        try:
            yield Elsewhere(partial(remove, orjson.loads(resource.resource)))
            removed += 1
        except Exception as caught:  # noqa: BLE001 - a failed removal must not prevent the others
            error = f"{type(caught).__name__}: {caught}"[:ERROR_LENGTH]
        yield partial(ops.resource_removed, resource, error)
    return removed
