"""Inside a worker: call the function of a Django task with the enqueued arguments.

`task_started` is sent here, in the process that runs the function, once per attempt. Stale database connections of
Django are closed before and after each call, as they are around a request.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from holdfast.django.compat import TaskContext, TaskResultStatus, normalize_json, task_backends, task_started
from holdfast.django.results import make_result
from holdfast.domain.context import RunContext, current_run
from holdfast.domain.tasks import registry

# The worker command sets these for its child processes: the name of its backend, and the database names by alias, which
# differ from the settings in a test run.
BACKEND_VARIABLE = "DJANGO_HOLDFAST_BACKEND"
DATABASES_VARIABLE = "DJANGO_HOLDFAST_DATABASES"
_SIGNATURE = inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("args", "kwargs")])


class _Exited(Exception):
    """Raised in place of SystemExit, so that a task that exits ends its run and not the process."""


# The name of the class in `TaskResult.errors`.
_Exited.__module__, _Exited.__qualname__ = "builtins", "SystemExit"


def performer(task: Any) -> Callable[..., Any]:
    """The callable that Holdfast runs for a Django task: it takes its arguments as `args` and `kwargs`."""
    perform: Any = _asynchronous(task) if iscoroutinefunction(task.func) else _blocking(task)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(perform, name, getattr(task.func, name, None))
    # `__wrapped__` shows where the function is defined. The explicit signature keeps it from being used for checks too.
    perform.__wrapped__, perform.__signature__, perform.django_task = task.func, _SIGNATURE, task
    made: Callable[..., Any] = perform
    return made


def django_task(name: str) -> Any:
    """The Django task that is registered under this name; None for other kinds of tasks."""
    found = registry.find(name)
    return getattr(found.fn, "django_task", None) if found is not None else None


def _blocking(task: Any) -> Callable[..., Any]:
    def perform(args: list[Any], kwargs: dict[str, Any]) -> Any:
        close_old_connections()
        try:
            given = _begin(task, current_run(), args, kwargs)
            return normalize_json(task.func(*given, **kwargs))
        except SystemExit as error:
            raise _Exited(error.code).with_traceback(error.__traceback__) from None
        finally:
            close_old_connections()

    return perform


def _asynchronous(task: Any) -> Callable[..., Any]:
    close, begin = sync_to_async(close_old_connections), sync_to_async(_begin)

    async def perform(args: list[Any], kwargs: dict[str, Any]) -> Any:
        await close()
        try:
            given = await begin(task, current_run(), args, kwargs)
            return normalize_json(await task.func(*given, **kwargs))
        except SystemExit as error:
            raise _Exited(error.code).with_traceback(error.__traceback__) from None
        finally:
            await close()

    return perform


def _begin(task: Any, run: RunContext, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Send `task_started`, and return the positional arguments of the call."""
    backend = task_backends[backend_alias(task)]
    if task.takes_context or has_receivers(task_started):
        result = backend.get_result(run.id)
    else:
        result = _result_without_query(task, run, args, kwargs)
    task_started.send_robust(sender=type(backend), task_result=result)
    return [TaskContext(task_result=result), *args] if task.takes_context else args


def _result_without_query(task: Any, run: RunContext, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result for Django's own log line, created without a query."""
    now = timezone.now()
    return make_result(
        task,
        id=run.id,
        status=TaskResultStatus.RUNNING,
        started_at=now,
        last_attempted_at=now,
        args=args,
        kwargs=kwargs,
        worker_ids=[run.link.worker_id],
    )


def backend_alias(task: Any) -> str:
    """The backend that this process works for; outside of a worker, the backend that the task declares."""
    return os.environ.get(BACKEND_VARIABLE) or str(task.backend)


def has_receivers(signal: Any) -> bool:
    """Whether anything but Django's own log listens to a signal."""
    return len(signal.receivers) > 1
