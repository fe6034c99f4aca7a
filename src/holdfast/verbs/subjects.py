"""The run, job or worker that a call is about, given as an object with an id, or as the id itself."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.domain.errors import HoldfastError, JobNotFound, NotFound, RunNotFound
from holdfast.domain.ids import parse_id


def _parser(kind: str, missing: type[HoldfastError]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        found = parse_id(getattr(value, "id", value))
        if found is None:
            raise missing(f"{value!r} is not the id of a {kind}")
        return found

    return parse


run_id = _parser("run", RunNotFound)
job_id = _parser("job", JobNotFound)
worker_id = _parser("worker", NotFound)

# By the name of the path parameter.
SUBJECTS: dict[str, Callable[[object], str]] = {"run_id": run_id, "job_id": job_id, "worker_id": worker_id, "name": str}
