"""Resources: external data to be removed after its job has ended."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.sql.statement import Statement, count, each, nothing


def add(job_id: str, resource: str, keep_for_retry: bool) -> Statement[int]:
    """Record a resource of a job, once. Return 0 if there is no such job or it has ended."""
    return Statement(
        """
        with job as (
            select id from holdfast.jobs where id = %(job_id)s::uuid and finished_at is null for key share
        ), noted as (
            insert into holdfast.resources (job_id, name, created_at, resource, keep_for_retry)
            select id, md5(%(resource)s), holdfast.now(), %(resource)s::json, %(keep_for_retry)s from job
            on conflict (job_id, name) do nothing
        )
        select count(*) from job
        """,
        {"job_id": job_id, "resource": resource, "keep_for_retry": keep_for_retry},
        count,
    )


class Resource(NamedTuple):
    job_id: str
    name: str
    resource: str


# Resources of jobs that have ended; a failed removal is retried after a minute.
TO_REMOVE = """
            from holdfast.resources
            join holdfast.jobs on jobs.id = resources.job_id
            where jobs.finished_at is not null
              and (jobs.outcome = 'SUCCEEDED' or not resources.keep_for_retry)
              and coalesce(resources.tried_at < holdfast.now() - interval '1 minute', true)
"""


def to_remove(limit: int = 100) -> Statement[list[Resource]]:
    """Return up to `limit` resources of jobs that have ended, each at most once a minute.

    The caller removes them and records the result.
    """
    return Statement(
        f"""
        with due as (
            select resources.job_id, resources.name {TO_REMOVE}
            order by resources.created_at limit %(limit)s for update of resources skip locked
        )
        update holdfast.resources set tried_at = holdfast.now() from due
        where resources.job_id = due.job_id and resources.name = due.name
        returning resources.job_id::text, resources.name, resources.resource::text
        """,
        {"limit": limit},
        each(Resource._make),
    )


def removed(job_id: str, name: str) -> Statement[None]:
    return Statement(
        "delete from holdfast.resources where job_id = %(job_id)s::uuid and name = %(name)s",
        {"job_id": job_id, "name": name},
        nothing,
    )


def not_removed(job_id: str, name: str, error: str) -> Statement[None]:
    """Record why a resource could not be removed; the removal is retried later."""
    return Statement(
        "update holdfast.resources set error = %(error)s where job_id = %(job_id)s::uuid and name = %(name)s",
        {"job_id": job_id, "name": name, "error": error},
        nothing,
    )
