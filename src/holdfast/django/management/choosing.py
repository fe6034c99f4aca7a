"""The option --backend, which all commands have, and errors in the words of a Django site."""

from __future__ import annotations

from argparse import ArgumentParser

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS

from holdfast.django.backend import HoldfastBackend
from holdfast.django.compat import task_backends


def add_backend(parser: ArgumentParser) -> None:
    parser.add_argument("--backend", default="default", help="the backend's alias in TASKS (default: default)")


def chosen_backend(alias: str) -> HoldfastBackend:
    if alias not in task_backends.settings:
        raise CommandError(f"There is no backend {alias!r} in TASKS; known: {', '.join(task_backends.settings)}.")
    found = task_backends[alias]
    if not isinstance(found, HoldfastBackend):
        raise CommandError(f"The backend {alias!r} in TASKS is a {type(found).__name__}, not a Holdfast backend.")
    return found


def in_django(error: BaseException, database: str) -> str:
    """The text of an error, with Django's command in place of Holdfast's own."""
    where = "" if database == DEFAULT_DB_ALIAS else f" --database={database}"
    return str(error).replace("holdfast db upgrade", f"manage.py migrate{where}")
