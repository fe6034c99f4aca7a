"""Django's Tasks framework: part of Django since 6.0, and the package `django-tasks` for earlier versions."""

from __future__ import annotations

from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured

if django.VERSION >= (6, 0):
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    FRAMEWORK = "django.tasks"
else:
    try:
        import django_tasks
    except ImportError as error:
        raise ImproperlyConfigured(
            f"Django {django.get_version()} has no Tasks framework; install the backport: pip install django-tasks"
        ) from error
    from django_tasks import exceptions, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

    def _exception(*names: str) -> Any:
        """The newest releases of `django-tasks` use Django's names for the exceptions; older ones have longer names."""
        found = [getattr(exceptions, name, None) or getattr(django_tasks, name, None) for name in names]
        return next(one for one in found if one is not None)

    InvalidTask = _exception("InvalidTask", "InvalidTaskError")
    TaskResultDoesNotExist = _exception("TaskResultDoesNotExist", "ResultDoesNotExist")
    TaskResultMismatch = _exception("TaskResultMismatch", "ResultMismatch")

    FRAMEWORK = "django_tasks"
