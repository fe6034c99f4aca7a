"""Resources: external data to be removed after its job has ended."""

from __future__ import annotations

from holdfast.domain.errors import JobEnded
from holdfast.ops.jobs import get_job
from holdfast.sql import resources
from holdfast.sql.resources import Resource
from holdfast.sql.statement import Op


def add_resource(job_id: str, resource: str, keep_for_retry: bool) -> Op[None]:
    """Record a resource to be removed after a job has ended. Raises JobEnded if it already has."""
    if not (yield from resources.add(job_id, resource, keep_for_retry)):
        job = yield from get_job(job_id)
        raise JobEnded(f"job {job_id} ({job.name}) ended {job.status}; remove the resource yourself")


def resources_to_remove(limit: int = 100) -> Op[list[Resource]]:
    """Return resources of jobs that have ended. The caller removes them and records the result."""
    return (yield from resources.to_remove(limit))


def resource_removed(resource: Resource, error: str | None = None) -> Op[None]:
    """Record that a resource was removed, or why it could not be."""
    if error is None:
        yield from resources.removed(resource.job_id, resource.name)
    else:
        yield from resources.not_removed(resource.job_id, resource.name, error)
