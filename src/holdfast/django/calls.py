"""What Holdfast can do with a task result beyond Django's API.

Each function takes a TaskResult or its id; an id is looked up through the default backend unless `backend` names
another. They run on Django's connection, in the current transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast import ops
from holdfast.django import databases
from holdfast.django.backend import HoldfastBackend
from holdfast.django.compat import TaskResult, TaskResultDoesNotExist, task_backends, task_finished
from holdfast.domain.errors import BadInput, Problem, RunNotFound
from holdfast.domain.ids import parse_id
from holdfast.domain.records import Reason
from holdfast.domain.tasks import is_key
from holdfast.domain.values import RunRecord

Call = tuple[Sequence[Any], Mapping[str, Any]]


def enqueue_many(task: Any, calls: Iterable[Call]) -> list[Any]:
    """Enqueue a task many times, all or none, in one statement: `enqueue_many(task, [(args, kwargs), ...])`."""
    return _backend(task.backend).bulk_enqueue(task, calls)


def enqueue_with_key(task: Any, key: str, *args: Any, **kwargs: Any) -> Any:
    """Enqueue a task once for each key: the same key with the same arguments returns the same result.

    Raises KeyReused if the key was used with another task or other arguments.
    """
    backend = _backend(task.backend)
    if not is_key(key):
        detail = "must be 1 to 255 visible ASCII characters"
        raise BadInput(f"/key: {detail}", [Problem("/key", detail)])
    return backend.enqueue(task, args, kwargs, key=key)


def cancel(result: Any, *, backend: str | None = None, reason: str = "cancelled from Django") -> RunRecord:
    """Cancel a run: immediately if it has not started, else it is asked to stop, and can then only end cancelled.

    Raises RunEnded if it has already ended in another way.
    """
    found, run_id = _find(result, backend)
    return cancel_on(found.database, run_id, reason, found)


def cancel_on(database: str, run_id: str, reason: str, backend: HoldfastBackend | None = None) -> RunRecord:
    """Cancel a run in this database; see `cancel`."""
    run: RunRecord
    run, ended = databases.run(database, ops.cancellation(run_id, reason))
    if ended:
        # No worker holds the run, so no worker will announce its end.
        databases.after_commit(database, partial(_announce, backend or _of_database(database), run_id))
    elif run.lease_owner is not None:
        databases.ring(database, [f"stop:{run.lease_owner}"])
    return run


def retry(result: Any, *, backend: str | None = None, by: str = "Django") -> RunRecord:
    """Reopen a failed or cancelled run, with its full number of attempts. Raises RunEnded for other runs."""
    found, run_id = _find(result, backend)
    return retry_on(found.database, run_id, by)


def retry_on(database: str, run_id: str, by: str) -> RunRecord:
    """Reopen a run in this database; see `retry`."""
    run: RunRecord = databases.run(database, ops.retry(run_id, by))
    databases.ring(database, [run.queue], [run])
    return run


def why(result: Any, *, backend: str | None = None) -> list[Reason]:
    """Explain the state of a run, the decisive reason first: what it is waiting for, where it runs, or how it ended."""
    found, run_id = _find(result, backend)
    return why_on(found.database, run_id)


def why_on(database: str, run_id: str) -> list[Reason]:
    """Explain the state of a run in this database; see `why`. Advice names Django's command for workers."""
    reasons: list[Reason] = databases.run(database, ops.explain(run_id))
    return [one._replace(text=one.detail.replace("holdfast worker", "manage.py holdfast_worker")) for one in reasons]


def progress(result: Any, *, backend: str | None = None) -> dict[str, Any] | None:
    """The progress of a run, as its task last reported it with `holdfast.current_run().progress(done, total)`."""
    return run_of(result, backend=backend).progress


def run_of(result: Any, *, backend: str | None = None) -> RunRecord:
    """The run behind a result, with everything that Holdfast knows about it. Raises RunNotFound."""
    found, run_id = _find(result, backend)
    run: RunRecord = databases.run(found.database, ops.get(run_id))
    return run


def _find(result: Any, backend: str | None) -> tuple[HoldfastBackend, str]:
    alias = backend or (result.backend if isinstance(result, TaskResult) else "default")
    run_id = parse_id(getattr(result, "id", result))
    if run_id is None:
        raise RunNotFound(f"{result!r} is neither a task result nor the id of one")
    return _backend(alias), run_id


def _backend(alias: str) -> HoldfastBackend:
    found = task_backends[alias]
    if not isinstance(found, HoldfastBackend):
        raise BadInput(f"the backend {alias!r} in TASKS is a {type(found).__name__}, not a Holdfast backend")
    return found


def _of_database(database: str) -> HoldfastBackend | None:
    """A backend that stores its runs in this database."""
    ours = (one for one in task_backends.all() if isinstance(one, HoldfastBackend))
    return next((one for one in ours if one.database == database), None)


def _announce(backend: HoldfastBackend | None, run_id: str) -> None:
    # A run that was not submitted through Django has no result to announce.
    with suppress(TaskResultDoesNotExist):
        if backend is not None:
            task_finished.send_robust(sender=type(backend), task_result=backend.get_result(run_id))
