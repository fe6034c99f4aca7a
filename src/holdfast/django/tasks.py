"""Registering Django's tasks with Holdfast: each task of our backend is registered under the path of its function.

Only registered tasks can run, and only the decorator in an imported module registers them: a path that comes from
outside is never imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from holdfast.django.compat import InvalidTask, Task, task_backends
from holdfast.domain.errors import ConfigurationError
from holdfast.domain.policies import Retry
from holdfast.domain.tasks import Task as RegisteredTask
from holdfast.domain.tasks import is_dedupe, is_short_text, registry

# An exception in a task fails its run, as with Django's other backends. Failures that the task did not cause (its
# process was killed, its worker was lost) are retried.
ONLY_AFTER_CRASHES = Retry(max_attempts=3, no_retry_on=(BaseException,))
OPTIONS = ("retry", "timeout", "executor", "resources", "dedupe", "concurrency_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldfastTask(Task):
    """Django's task with Holdfast's options. None leaves the choice to the backend's `OPTIONS`."""

    retry: Retry | Mapping[str, Any] | None = None
    timeout: timedelta | None = None
    executor: str | None = None
    resources: Mapping[str, float] | None = None
    dedupe: str | timedelta | float | None = None
    concurrency_key: str | None = None

    def using(self, **changes: Any) -> Any:
        """Create a task with other defaults. Also accepts `dedupe` and `concurrency_key`.

        `run_after` may be a timedelta from now.
        """
        unknown = set(changes) - {"priority", "queue_name", "run_after", "backend", "dedupe", "concurrency_key"}
        if unknown:
            raise TypeError(f"using() got an unexpected keyword argument {min(unknown)!r}")
        if isinstance(changes.get("run_after"), timedelta):
            from django.utils import timezone

            changes["run_after"] = timezone.now() + changes["run_after"]
        backend = changes.get("backend")
        given = {name: value for name, value in changes.items() if value is not None}
        if backend is not None and not issubclass(task_backends[backend].task_class, HoldfastTask):
            return plain(self, given)
        return replace(self, **given)


def plain(task: HoldfastTask, changes: Mapping[str, Any]) -> Any:
    """The same task for another backend, which does not know Holdfast's options."""
    django = ("func", "priority", "queue_name", "run_after", "backend", "takes_context")
    kept = {name: getattr(task, name) for name in django} | dict(changes)
    return task_backends[kept["backend"]].task_class(**{name: kept[name] for name in django})


def task(
    function: Callable[..., Any] | None = None,
    *,
    priority: int = 0,
    queue_name: str = "default",
    backend: str = "default",
    takes_context: bool = False,
    **options: Any,
) -> Any:
    """Django's `@task`, with Holdfast's options: retry, timeout, executor, resources, dedupe, concurrency_key.

    With a backend that is not Holdfast's, in tests for instance, the options have no effect.
    """
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise TypeError(f"@task got an unexpected keyword argument {min(unknown)!r}")

    def decorate(func: Callable[..., Any]) -> Any:
        task_class = task_backends[backend].task_class
        given = options if issubclass(task_class, HoldfastTask) else {}
        return task_class(
            func=func,
            priority=priority,
            queue_name=queue_name,
            run_after=None,
            backend=backend,
            takes_context=takes_context,
            **given,
        )

    return decorate(function) if function is not None else decorate


def check_options(task: Any) -> None:
    """Raise InvalidTask for what Postgres would reject, or what could not have the intended effect."""
    if not is_short_text(task.queue_name):
        raise InvalidTask(f"queue_name={task.queue_name!r} must be a string of 1 to 255 printable characters")
    key, dedupe = option(task, "concurrency_key"), option(task, "dedupe")
    if key is not None and not is_short_text(key):
        raise InvalidTask(f"concurrency_key={key!r} must be a string of 1 to 255 printable characters")
    if dedupe is not None and not is_dedupe(dedupe):
        raise InvalidTask(f'dedupe={dedupe!r} must be "off", "active", or a positive timedelta of at most 30 years')


def option(task: Any, name: str) -> Any:
    """An option of a task; None if the task was declared with another backend, and so has no such options."""
    return getattr(task, name, None)


def policy_of(task: Any, options: Mapping[str, Any]) -> Retry:
    """The retry policy of a task: its own, or else its queue's, or else its backend's."""
    for given in (option(task, "retry"), options.get("QUEUE_RETRY", {}).get(task.queue_name), options.get("RETRY")):
        if given is not None:
            return given if isinstance(given, Retry) else Retry(**given)
    return ONLY_AFTER_CRASHES


def timeout_of(task: Any, options: Mapping[str, Any]) -> timedelta | None:
    """How long an attempt may take."""
    given: Any = option(task, "timeout")
    given = options.get("TIMEOUT") if given is None else given
    return given if isinstance(given, timedelta) or given is None else timedelta(seconds=given)


def register(task: Any, options: Mapping[str, Any]) -> None:
    """Register a task, so that workers can run it. The first one is kept: `using()` creates copies of a task."""
    from holdfast.django.performing import performer

    name = task.module_path
    if registry.find(name) is not None:
        return
    try:
        executor: Any = option(task, "executor") or options.get("EXECUTOR")
        registry.register(
            RegisteredTask(
                name,
                performer(task),
                queue=task.queue_name,
                retry=policy_of(task, options),
                timeout=timeout_of(task, options),
                executor=executor,
                resources=option(task, "resources"),
            )
        )
    except (ConfigurationError, TypeError) as error:
        raise InvalidTask(str(error)) from error
