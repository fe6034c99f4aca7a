"""Upkeep of jobs: what any worker does for all, bounded and safe to be done by many at once.

Stops jobs whose time is over and goes on with stops that were cut off, ends jobs that were kept open in vain, decides
about runs that wait for nothing any more, and removes the temporary resources of jobs that have ended.
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
    """Stop jobs whose time is over, and those whose stop was cut off; tells how many."""
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
    """End jobs that were kept open for a join which never came; tells how many."""
    ended: int = yield ops.end_held_jobs
    return ended


def heal_dependencies() -> Procedure[int]:
    """Decide about runs whose count of what they wait for does not agree with the rows; tells how many."""
    healed = 0
    after: str | None = FIRST
    while after is not None:
        amount, after = yield partial(ops.heal_dependencies, after)
        healed += amount
    return healed


def remove_resources() -> Procedure[int]:
    """Remove the temporary resources of jobs that have ended; tells how many. What cannot be is tried again later."""
    found: list[Resource] = yield ops.resources_to_remove
    removed = 0
    for resource in found:
        error = None
        try:
            yield Elsewhere(partial(remove, orjson.loads(resource.resource)))
            removed += 1
        except Exception as caught:  # noqa: BLE001 - one that cannot be removed never strands the others
            error = f"{type(caught).__name__}: {caught}"[:ERROR_LENGTH]
        yield partial(ops.resource_removed, resource, error)
    return removed
