"""Django, set up once per process. Each test gets its own database, cloned from one that `migrate` created."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import django
import psycopg
import pytest
from psycopg import sql

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django.settings")
django.setup()

from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import connections

from holdfast.django import databases
from holdfast.django.compat import task_enqueued, task_finished, task_started
from tests.conftest import database_name, drop_database, with_database
from tests.django.settings import DATABASE_VARIABLE, database

_numbers = itertools.count(1)


def use_database(url: str) -> None:
    """Point Django's default connection to this database, in all threads."""
    connections.close_all()
    connections.settings["default"].update(database(url))
    connections["default"].settings_dict.update(database(url))


@pytest.fixture(scope="session")
def migrated_site(server_connection: psycopg.Connection, server_url: str, run_directory: Path) -> str:
    """The name of a database that was empty before `manage.py migrate`."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name = database_name(run_directory, f"django_{worker}")
    server_connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    use_database(with_database(server_url, name))
    call_command("migrate", run_syncdb=True, verbosity=0)
    connections.close_all()
    return name


@pytest.fixture
def site_url(
    server_connection: psycopg.Connection, server_url: str, migrated_site: str, run_directory: Path
) -> Iterator[str]:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name = database_name(run_directory, f"django_{worker}_{next(_numbers)}")
    clone = sql.SQL("create database {} template {} strategy file_copy")
    server_connection.execute(clone.format(sql.Identifier(name), sql.Identifier(migrated_site)))
    try:
        yield with_database(server_url, name)
    finally:
        connections.close_all()
        drop_database(server_connection, name)


@pytest.fixture
def site(site_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The site with its database, also for child processes."""
    monkeypatch.setenv(DATABASE_VARIABLE, site_url)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    use_database(site_url)
    databases.settings.cache_clear()
    return site_url


@pytest.fixture
async def async_site(site: str) -> AsyncIterator[str]:
    """The same for asynchronous tests: the thread with its connection outlives the test."""
    yield site
    await sync_to_async(connections.close_all)()


Work = Callable[..., None]


@pytest.fixture
def work(site: str) -> Work:
    """Execute due runs, in threads of this process unless another executor is given."""

    def run(**options: Any) -> None:
        given = {"batch": True, "executor": "inline", "verbosity": 0, "stdout": io.StringIO(), **options}
        call_command("holdfast_worker", skip_checks=True, **given)

    return run


@pytest.fixture
def signals() -> Iterator[list[tuple[str, Any, Any]]]:
    """The signals that this process sent: name, sender and result."""
    sent: list[tuple[str, Any, Any]] = []
    receivers = []
    for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def receive(sender: Any, task_result: Any, name: str = name, **kwargs: Any) -> None:
            sent.append((name, sender, task_result))

        signal.connect(receive)
        receivers.append((signal, receive))
    yield sent
    for signal, receive in receivers:
        signal.disconnect(receive)
