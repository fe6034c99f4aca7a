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
        hint = 'Add "holdfast.django" to INSTALLED_APPS and run manage.py migrate.'
        yield _error("E001", f"{where} uses Holdfast, but its app is not installed.", hint)
    for name in backend.options:
        if name not in KNOWN:
            yield _error("E002", f"{where} has the unknown option {name!r}.", f"Known options: {', '.join(KNOWN)}.")
    yield from _database(backend, where)
    yield from _policies(backend, where)


def _error(number: str, message: str, hint: str | None = None) -> Any:
    return checks.Error(message, hint=hint, id=f"holdfast.{number}")


def _database(backend: Any, where: str) -> Iterator[Any]:
    alias = backend.database
    if alias not in connections.settings:
        hint = f"Known databases: {', '.join(connections.settings)}."
        yield _error("E003", f"{where} names the database {alias!r}, which is not in DATABASES.", hint)
    elif connections[alias].vendor != "postgresql":
        hint = 'Holdfast needs PostgreSQL. Name a PostgreSQL database in OPTIONS: {"DATABASE": alias}.'
        yield _error("E004", f"{where} uses the database {alias!r}, which is {connections[alias].vendor}.", hint)


def _policies(backend: Any, where: str) -> Iterator[Any]:
    options = backend.options
    per_queue = options.get("QUEUE_RETRY", {})
    if not isinstance(per_queue, Mapping):
        yield _error("E005", f"{where}: QUEUE_RETRY must be a dictionary by queue.")
        per_queue = {}
    for name, given in (("RETRY", options.get("RETRY")), *((f"QUEUE_RETRY[{q!r}]", r) for q, r in per_queue.items())):
        try:
            if given is not None and not isinstance(given, Retry):
                Retry(**given)
        except (HoldfastError, TypeError) as error:
            yield _error("E005", f"{where}: {name} cannot be used: {error}")
    for queue in per_queue:
        if backend.queues and queue not in backend.queues:
            yield checks.Warning(
                f"{where}: QUEUE_RETRY names the queue {queue!r}, which is not in QUEUES.", id="holdfast.W006"
            )
    timeout = options.get("TIMEOUT")
    if timeout is not None and not is_duration(timeout):
        limits = "a positive number of seconds or a timedelta, of at most 30 years"
        yield _error("E007", f"{where}: TIMEOUT must be {limits}.")
    executor, known = options.get("EXECUTOR"), get_args(ExecutorName)
    if executor is not None and executor not in known:
        yield _error("E008", f"{where}: there is no EXECUTOR {executor!r}.", f"Known executors: {', '.join(known)}.")
