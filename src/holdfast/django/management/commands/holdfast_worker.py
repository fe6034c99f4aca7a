"""`manage.py holdfast_worker`: run enqueued tasks."""

from __future__ import annotations

import json
import math
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any, get_args

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from holdfast.assembly.worker import WorkerRequest, run_worker
from holdfast.django import announcing, databases
from holdfast.django.backend import HoldfastBackend
from holdfast.django.management.choosing import add_backend, chosen_backend, in_django
from holdfast.django.performing import BACKEND_VARIABLE, DATABASES_VARIABLE, django_task
from holdfast.django.stopping import stop_after, stop_on_change, supervise_reloads
from holdfast.domain.errors import HoldfastError
from holdfast.domain.tasks import ExecutorName, registry

EXECUTORS = get_args(ExecutorName)
LOG_LEVELS = {0: "error", 1: "info", 2: "info", 3: "debug"}
SETUP = "holdfast.django.setup"
LEAST_INTERVAL = 0.1


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError("must be at least 1")
    return number


def seconds(text: str) -> float:
    number = float(text)
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentTypeError("must be zero or more")
    return max(number, LEAST_INTERVAL)


def worker_id(text: str) -> str:
    if not 1 <= len(text) <= 64 or not text.isprintable():
        raise ArgumentTypeError("must be 1 to 64 printable characters")
    return text


class Command(BaseCommand):
    help = "Run the tasks that were enqueued through a Holdfast backend."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--queue-name",
            default="",
            help="queues to serve, separated by commas; * for every queue (default: the backend's QUEUES)",
        )
        parser.add_argument("--exclude-queues", default="", help="queues to exclude, with --queue-name=*")
        parser.add_argument(
            "--interval",
            type=seconds,
            help="how often an idle worker polls for tasks, in seconds (default: 8; new tasks wake it immediately)",
        )
        parser.add_argument("--batch", action="store_true", help="run all due tasks, then exit")
        parser.add_argument("--max-tasks", type=positive, help="exit after this many tasks have ended")
        parser.add_argument("--worker-id", type=worker_id, help="the name in TaskResult.worker_ids")
        add_backend(parser)
        parser.add_argument(
            "--executor", choices=EXECUTORS, default="process", help="where tasks run (default: child processes)"
        )
        parser.add_argument("--slots", type=positive, help="how many tasks run at once")
        parser.add_argument(
            "--reload",
            action=BooleanOptionalAction,
            help="restart when source code changes (default: only with DEBUG on a terminal)",
        )
        parser.add_argument(
            "--startup-delay",
            action=BooleanOptionalAction,
            default=False,
            help="accepted for compatibility, and ignored: workers need no delay",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        backend = chosen_backend(options["backend"])
        # By default only a terminal gets a reloader: if a test calls this command, it must return.
        reload = options["reload"] if options["reload"] is not None else _is_interactive(options)
        if reload and options["batch"]:
            raise CommandError("--batch and --reload cannot be combined.")
        if reload and not supervise_reloads():
            return
        try:
            self._work(backend, options, reload)
        except HoldfastError as error:
            raise CommandError(in_django(error, backend.database)) from error

    def _work(self, backend: HoldfastBackend, options: dict[str, Any], reload: bool) -> None:
        request = WorkerRequest(
            queues=_queues(backend, options["queue_name"], options["exclude_queues"]),
            slots=options["slots"],
            executor=options["executor"],
            tasks=task_modules(),
            name=options["worker_id"] or "",
            until_empty=options["batch"],
            poll_seconds=options["interval"],
        )
        base = databases.settings()
        level = LOG_LEVELS.get(options["verbosity"], "info") if options["verbosity"] != 1 else base.log_level
        settings = replace(base, database_url=databases.url_of(backend.database), log_level=level)
        with child_environment(backend), stop_after(options["max_tasks"]), stop_on_change(reload):
            try:
                run_worker(settings, request)
            finally:
                announcing.flush()


def task_modules() -> tuple[str, ...]:
    """The modules that child processes import: all that define tasks known to this process, views included."""
    import_module(SETUP)
    urls = getattr(django_settings, "ROOT_URLCONF", None)
    if urls:
        import_module(urls)
    names = registry.names()
    modules = {found.func.__module__ for name in names if (found := django_task(name)) is not None}
    return (SETUP, *sorted(modules - {"__main__"}))


@contextmanager
def child_environment(backend: HoldfastBackend) -> Iterator[None]:
    """Set environment variables that give child processes the backend and the databases of this process."""
    names = {alias: str(connections.settings[alias]["NAME"]) for alias in connections.settings}
    given = {BACKEND_VARIABLE: backend.alias, DATABASES_VARIABLE: json.dumps(names)}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _queues(backend: HoldfastBackend, given: str, excluded: str) -> tuple[str, ...] | None:
    names, without = _split(given), set(_split(excluded))
    if without and names != ["*"]:
        raise CommandError("--exclude-queues needs --queue-name=*.")
    if without:
        if not backend.queues:
            raise CommandError("--exclude-queues needs QUEUES in TASKS, so that the other queues are known.")
        return tuple(sorted(backend.queues - without))
    if names == ["*"] or not (names or backend.queues):
        return None
    unknown = [name for name in names if backend.queues and name not in backend.queues]
    if unknown:
        known = ", ".join(sorted(backend.queues))
        raise CommandError(
            f"There is no queue {unknown[0]!r} in the QUEUES of backend {backend.alias!r}; known: {known}."
        )
    return tuple(names) or tuple(sorted(backend.queues))


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _is_interactive(options: dict[str, Any]) -> bool:
    wanted: Iterable[bool] = (django_settings.DEBUG, not options["batch"], sys.stdin.isatty(), sys.stderr.isatty())
    return all(wanted)
