"""A run as Django's TaskResult."""

from __future__ import annotations

import builtins
import sys
from dataclasses import fields
from typing import Any

import orjson
from django.apps import apps
from django.utils.module_loading import import_string

from holdfast.django import exceptions
from holdfast.django.compat import Task, TaskError, TaskResult, TaskResultStatus
from holdfast.django.exceptions import LeaseExpired
from holdfast.domain import errors as known_errors
from holdfast.domain.errors import HoldfastError, RunCancelled
from holdfast.domain.states import Status
from holdfast.sql.task_results import Failure, TaskResultRecord

STATUSES = {
    Status.PENDING: TaskResultStatus.READY,
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    Status.FAILED: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
}


def is_task_run(record: TaskResultRecord) -> bool:
    """Whether this is a run of a Django task, and was not submitted in another way."""
    given = record.parameters
    return isinstance(given, dict) and given.keys() == {"args", "kwargs"}


def task_result(record: TaskResultRecord, alias: str, value: bytes | None) -> Any:
    """Django's TaskResult for a run; `value` is the JSON text of the return value, if the task succeeded."""
    backend = record.backend or alias
    result = make_result(
        restored_task(record, backend),
        id=record.id,
        status=STATUSES[record.status],
        enqueued_at=record.created_at,
        started_at=record.first_attempt_at,
        last_attempted_at=record.last_attempt_at,
        finished_at=record.finished_at,
        args=record.parameters["args"],
        kwargs=record.parameters["kwargs"],
        errors=task_errors(record),
        worker_ids=list(record.workers),
    )
    if value is not None:
        object.__setattr__(result, "_return_value", orjson.loads(value))
    return result


def make_result(task: Any, **values: Any) -> Any:
    """A TaskResult. Values that are not given say that something has not happened yet."""
    blank: dict[str, Any] = {
        "enqueued_at": None,
        "started_at": None,
        "last_attempted_at": None,
        "finished_at": None,
        "errors": [],
        "worker_ids": [],
    }
    return TaskResult(task=task, backend=task.backend, **(blank | values))


def restored_task(record: TaskResultRecord, backend: str) -> Any:
    """The task as it was enqueued. It is not validated: its queue or function may no longer exist."""
    return unchecked(
        find_task(record.task),
        priority=record.priority,
        queue_name=record.queue,
        run_after=record.run_after,
        backend=backend,
    )


def find_task(path: str) -> Any:
    """The task at a stored path, or a placeholder that cannot be called if it no longer exists.

    Only modules of installed apps and modules that are already loaded are searched, and only tasks are accepted: stored
    text can neither import another module nor run another object.
    """
    try:
        found = import_string(path) if _is_known(path.rpartition(".")[0]) else None
    except Exception:  # noqa: BLE001 - importing runs user code
        found = None
    if isinstance(found, Task) and found.module_path == path:
        return found
    return missing_task(path)


def _is_known(module: str) -> bool:
    return module in sys.modules or any(f"{module}.".startswith(f"{app.name}.") for app in apps.get_app_configs())


def unchecked(task: Any, **changes: Any) -> Any:
    """A copy of a task with other values, without validation."""
    return _filled(type(task), {field.name: getattr(task, field.name) for field in fields(task)} | changes)


def _filled(kind: Any, values: dict[str, Any]) -> Any:
    """A task with these values; its other fields are None."""
    made = object.__new__(kind)
    for field in fields(kind):
        object.__setattr__(made, field.name, values.get(field.name))
    return made


def missing_task(path: str) -> Any:
    """A placeholder for a task whose function no longer exists. It has the task's name, and raises when called."""
    from holdfast.django.tasks import HoldfastTask

    module, _, name = path.rpartition(".")

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise ImportError(f"the task {path} no longer exists: it was renamed, moved or removed")

    missing.__module__, missing.__qualname__, missing.__name__ = module, name, name
    values = {"func": missing, "priority": 0, "queue_name": "default", "backend": "default", "takes_context": False}
    return _filled(HoldfastTask, values)


def task_errors(record: TaskResultRecord) -> list[Any]:
    """One error for each attempt that failed or was lost, oldest first, and one if the run was cancelled."""
    found = [_error(failure) for failure in record.failures]
    if record.status is Status.CANCELLED:
        found.append(_synthetic_error(RunCancelled, record.reason or "the run was cancelled"))
    return found


def _error(failure: Failure) -> Any:
    error = failure.error
    if not isinstance(error, dict):
        return _synthetic_error(LeaseExpired, "the worker was lost: it was killed, or could not reach the database")
    path = importable(str(error.get("class")))
    written = error.get("traceback") or f"{path}: {error.get('message')}"
    return TaskError(exception_class_path=path, traceback=written)


def _synthetic_error(error: type[BaseException], message: str) -> Any:
    path = f"{error.__module__}.{error.__qualname__}"
    return TaskError(exception_class_path=path, traceback=f"{path}: {message}")


def importable(name: str) -> str:
    """The import path of a stored exception class; builtins and Holdfast's own are stored without a module."""
    if "." in name:
        return name
    for module in (builtins, known_errors, exceptions):
        if isinstance(getattr(module, name, None), type):
            return f"{module.__name__}.{name}"
    return f"{HoldfastError.__module__}.{HoldfastError.__qualname__}"
