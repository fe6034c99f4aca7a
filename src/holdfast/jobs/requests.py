"""The HTTP requests of those job verbs that need more than their encoded arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.domain.ids import new_id
from holdfast.jobs.specs import status_of
from holdfast.verbs.requests import Request, encoded, key_header, plain, task_name, written
from holdfast.verbs.subjects import job_id as job_id_of

# The largest page that the API returns.
PAGE = 200


def create_job_request(
    name: str, tasks: Iterable[Mapping[str, Any]] = (), description: str | None = None, timeout: Any = None
) -> Request:
    """The request has a key, so that it can be retried safely."""
    given = {"description": description, "timeout": timeout}
    document = {field: plain(value, field) for field, value in given.items() if value is not None}
    document |= {"name": name, "tasks": [_task(task) for task in tasks]}
    return Request("POST", "/jobs", headers=key_header(f"auto-{new_id()}"), body=written(document))


def _task(task: Any) -> Any:
    if not isinstance(task, Mapping) or "entrypoint" not in task:
        return task  # the server reports what is wrong with it
    given = {field: plain(value, field) for field, value in task.items() if value is not None}
    entrypoint = given["entrypoint"]
    kwargs = encoded(entrypoint, given["kwargs"]) if isinstance(given.get("kwargs"), Mapping) else given.get("kwargs")
    return {**given, "entrypoint": task_name(entrypoint, "/entrypoint"), "kwargs": kwargs}


def list_jobs_request(
    status: str | None = None, *, name: str | None = None, cursor: str | None = None, limit: int | None = None
) -> Request:
    """Statuses may be in upper or lower case; `completed` is accepted for SUCCEEDED."""
    before = job_id_of(cursor) if cursor is not None else None
    given = {"status": status_of(status), "name": name, "cursor": before, "limit": limit}
    return Request("GET", "/jobs", {field: str(value) for field, value in given.items() if value is not None})


def job_tasks_request(job: object, *, cursor: str | None = None, limit: int | None = None) -> Request:
    """A page may have fewer tasks than asked for: the API limits its size."""
    given = {"cursor": cursor, "limit": min(limit, PAGE) if limit is not None else None}
    query = {field: str(value) for field, value in given.items() if value is not None}
    return Request("GET", f"/jobs/{job_id_of(job)}/tasks", query)


def add_task_request(
    job_id: object, entrypoint: Any, kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Request:
    """The request may be retried only if the task has a key, because only then is an existing task found."""
    document = _task({"entrypoint": entrypoint, "kwargs": kwargs, **options})
    repeatable = options.get("key") is not None
    return Request("POST", f"/jobs/{job_id_of(job_id)}/tasks", body=written(document), repeatable=repeatable)
