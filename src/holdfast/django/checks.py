"""The checks of a backend for `manage.py check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from django.apps import apps
from django.core import checks
from django.db import connections

from holdfast.domain.errors import HoldfastError
from holdfast.domain.policies import Retry
from holdfast.domain.tasks import ExecutorName
from holdfast.domain.times import is_duration

KNOWN = ("DATABASE", "RETRY", "QUEUE_RETRY", "TIMEOUT", "EXECUTOR")


def check_backend(backend: Any) -> Iterator[Any]:
    where = f"TASKS[{backend.alias!r}]"
    if not apps.is_installed("holdfast.django"):
        yield checks.Error(
            f"{where} uses Holdfast, but its app is not installed.",
            hint='Add "holdfast.django" to INSTALLED_APPS and run manage.py migrate.',
            id="holdfast.E001",
        )
    for name in backend.options:
        if name not in KNOWN:
            yield checks.Error(
                f"{where} has the unknown option {name!r}.",
                hint=f"Known options: {', '.join(KNOWN)}.",
                id="holdfast.E002",
            )
    yield from _database(backend, where)
    yield from _policies(backend, where)


def _database(backend: Any, where: str) -> Iterator[Any]:
    alias = backend.database
    if alias not in connections.settings:
        yield checks.Error(
            f"{where} names the database {alias!r}, which is not in DATABASES.",
            hint=f"Known databases: {', '.join(connections.settings)}.",
            id="holdfast.E003",
        )
    elif connections[alias].vendor != "postgresql":
        yield checks.Error(
            f"{where} uses the database {alias!r}, which is {connections[alias].vendor}.",
            hint='Holdfast needs PostgreSQL. Name a PostgreSQL database in OPTIONS: {"DATABASE": alias}.',
            id="holdfast.E004",
        )


def _policies(backend: Any, where: str) -> Iterator[Any]:
    options = backend.options
    per_queue = options.get("QUEUE_RETRY", {})
    if not isinstance(per_queue, Mapping):
        yield checks.Error(f"{where}: QUEUE_RETRY must be a dictionary by queue.", id="holdfast.E005")
        per_queue = {}
    for name, given in (("RETRY", options.get("RETRY")), *((f"QUEUE_RETRY[{q!r}]", r) for q, r in per_queue.items())):
        try:
            if given is not None and not isinstance(given, Retry):
                Retry(**given)
        except (HoldfastError, TypeError) as error:
            yield checks.Error(f"{where}: {name} cannot be used: {error}", id="holdfast.E005")
    for queue in per_queue:
        if backend.queues and queue not in backend.queues:
            yield checks.Warning(
                f"{where}: QUEUE_RETRY names the queue {queue!r}, which is not in QUEUES.", id="holdfast.W006"
            )
    timeout = options.get("TIMEOUT")
    if timeout is not None and not is_duration(timeout):
        yield checks.Error(
            f"{where}: TIMEOUT must be a positive number of seconds or a timedelta, of at most 30 years.",
            id="holdfast.E007",
        )
    executor = options.get("EXECUTOR")
    if executor is not None and executor not in get_args(ExecutorName):
        known = ", ".join(get_args(ExecutorName))
        yield checks.Error(
            f"{where}: there is no EXECUTOR {executor!r}.", hint=f"Known executors: {known}.", id="holdfast.E008"
        )
