"""Holdfast as a backend for Django's Tasks framework.

    INSTALLED_APPS += ["holdfast.django"]
    TASKS = {"default": {"BACKEND": "holdfast.django.HoldfastBackend"}}

Then `manage.py migrate` and `manage.py holdfast_worker`; docs/django.md has the rest.
"""

from holdfast.django.backend import HoldfastBackend
from holdfast.django.calls import cancel, enqueue_many, enqueue_with_key, progress, retry, run_of, why
from holdfast.django.jobs import client, job_task
from holdfast.django.tasks import task

__all__ = [
    "HoldfastBackend",
    "cancel",
    "client",
    "enqueue_many",
    "enqueue_with_key",
    "job_task",
    "progress",
    "retry",
    "run_of",
    "task",
    "why",
]
