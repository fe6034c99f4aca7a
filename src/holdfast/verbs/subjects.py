"""The run, job or worker that a call is about, given as an object with an id, or as the id itself."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.domain.errors import JobNotFound, NotFound, RunNotFound
from holdfast.domain.ids import parse_id


def run_id(value: object) -> str:
    found = parse_id(getattr(value, "id", value))
    if found is None:
        raise RunNotFound(f"{value!r} is not the id of a run")
    return found


def job_id(value: object) -> str:
    found = parse_id(getattr(value, "id", value))
    if found is None:
        raise JobNotFound(f"{value!r} is not the id of a job")
    return found


def worker_id(value: object) -> str:
    found = parse_id(getattr(value, "id", value))
    if found is None:
        raise NotFound(f"{value!r} is not the id of a worker")
    return found


# By the name of the path parameter.
SUBJECTS: dict[str, Callable[[object], str]] = {
    "run_id": run_id,
    "job_id": job_id,
    "worker_id": worker_id,
    "name": str,
}
