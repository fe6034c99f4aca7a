"""Two databases: the option DATABASE or the router chooses the one for a backend's runs and their transactions."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test import override_settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from holdfast.django import cancel, databases, performing, run_of
from holdfast.django.compat import TaskResultDoesNotExist, task_backends
from holdfast.django.models import Run
from holdfast.runtime.settings import masked
from tests.conftest import database_name, drop_database, with_database
from tests.django.app import tasks
from tests.django.conftest import Work
from tests.django.settings import database
from tests.django.test_transactions import Undo, count_committed

BACKEND = "holdfast.django.HoldfastBackend"
TASKS = {
    "default": {"BACKEND": BACKEND, "QUEUES": []},
    "elsewhere": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"DATABASE": "second"}},
}


class SecondForHoldfast:
    """A router that puts Holdfast's tables into the second database."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "second" if model._meta.app_label == "holdfast" else None

    db_for_write = db_for_read


@pytest.fixture
def second(site: str, server_connection: psycopg.Connection, server_url: str, run_directory: Path) -> Iterator[str]:
    """The address of a second database, empty before `migrate --database second`."""
    name = database_name(run_directory, f"django_second_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}")
    server_connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    url = with_database(server_url, name)
    connections.settings["second"] = connections.settings["default"] | database(url)
    with override_settings(TASKS=TASKS):
        call_command("migrate", "holdfast", database="second", verbosity=0)
        yield url
    connections["second"].close()
    del connections["second"], connections.settings["second"]
    drop_database(server_connection, name)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            {"dbname": "a b", "user": "ann", "password": "p@ss w:/?rd", "host": "::1", "port": "5432"},
            "postgresql://ann:********@%3A%3A1:5432/a%20b?",
        ),
        (
            {"dbname": "x", "host": "/run/pg", "options": "-c role=y"},
            "postgresql://@%2Frun%2Fpg/x?options=-c%20role%3Dy",
        ),
        ({"service": "shop"}, "postgresql://@/?service=shop"),
    ],
)
def test_url_for_libpq_has_all_parameters_and_can_be_masked(given: dict[str, str], shown: str) -> None:
    url = databases.as_url(given)
    assert conninfo_to_dict(url) == given
    assert masked(url) == shown


def test_run_is_written_to_the_database_of_its_backend(site: str, second: str, work: Work) -> None:
    here, there = tasks.add.enqueue(1), tasks.add.using(backend="elsewhere").enqueue(2)
    assert (count_committed(site), count_committed(second)) == (1, 1)
    work(backend="elsewhere")
    here.refresh()
    there.refresh()
    assert (here.status, there.status, there.return_value, there.backend) == ("READY", "SUCCESSFUL", 3, "elsewhere")
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(there.id)
    assert [str(run.pk) for run in Run.objects.using("second")] == [there.id]


def test_worker_without_tables_names_the_database_to_migrate(site: str, second: str, work: Work) -> None:
    with connections["second"].cursor() as cursor:
        cursor.execute("drop schema holdfast cascade")
    with pytest.raises(CommandError, match=r"run: manage\.py migrate --database=second"):
        work(backend="elsewhere")


def test_doctor_names_the_command_that_grants_privileges(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    role = f"visitor_{os.getpid()}"
    with psycopg.connect(site, autocommit=True) as owner:
        owner.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", {"assume_role": role})
        said = io.StringIO()
        try:
            with pytest.raises(CommandError, match="Problems found: 1"):
                call_command("holdfast_doctor", stderr=said)
        finally:
            connections["default"].close()
            owner.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
    assert "holdfast db grants client ROLE" in said.getvalue()


def test_transaction_of_one_database_does_not_affect_the_other(site: str, second: str) -> None:
    with suppress(Undo), transaction.atomic():
        tasks.add.enqueue(1)
        kept = tasks.add.using(backend="elsewhere").enqueue(2)
        raise Undo
    assert (count_committed(site), count_committed(second)) == (0, 1)
    with suppress(Undo), transaction.atomic(using="second"):
        tasks.add.using(backend="elsewhere").enqueue(3)
        cancel(kept)
        raise Undo
    assert (count_committed(second), run_of(kept).status) == (1, "PENDING")
    assert cancel(kept.id, backend="elsewhere").status == "CANCELLED"


def test_router_chooses_the_database_of_a_backend_without_the_option(site: str, second: str, work: Work) -> None:
    routers = [f"{__name__}.SecondForHoldfast"]
    with override_settings(DATABASE_ROUTERS=routers, TASKS={"default": {"BACKEND": BACKEND, "QUEUES": []}}):
        result = tasks.add.enqueue(1)
        work()
        result.refresh()
        assert result.status == "SUCCESSFUL"
        assert (count_committed(site), count_committed(second)) == (0, 1)


def test_two_backends_on_one_database_share_its_queues(site: str, work: Work) -> None:
    """Workers serve queues: to keep the tasks of two backends apart, give each its own QUEUES."""
    configured = {"default": {"BACKEND": BACKEND, "QUEUES": ["a"]}, "other": {"BACKEND": BACKEND, "QUEUES": ["b"]}}
    with override_settings(TASKS=configured):
        first = tasks.add.using(queue_name="a").enqueue(1)
        other = tasks.add.using(backend="other", queue_name="b").enqueue(2)
        work(backend="other")
        first.refresh()
        other.refresh()
        assert (first.status, other.status, other.backend) == ("READY", "SUCCESSFUL", "other")


def test_migrate_creates_no_tables_in_a_database_that_no_backend_uses(site: str, second: str) -> None:
    with connections["second"].cursor() as cursor:
        cursor.execute("drop schema holdfast cascade")
        cursor.execute("delete from django_migrations")
        with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": []}}):
            call_command("migrate", "holdfast", database="second", verbosity=0)
        cursor.execute("select to_regnamespace('holdfast')")
        assert cursor.fetchone() == (None,)


def test_notification_closes_only_a_connection_that_was_opened_for_it(site: str) -> None:
    """A hint may be sent by a thread of its own, which must not keep a connection."""

    def notify() -> bool:
        databases._notify("default", ["default"])
        return connections["default"].connection is None

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(notify).result()
    connections["default"].ensure_connection()
    assert not notify()


def test_connection_that_became_too_old_between_two_tasks_is_replaced(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = SimpleNamespace(id="1", link=SimpleNamespace(worker_id="1"))
    monkeypatch.setattr(performing, "current_run", lambda: current)
    connection = connections["default"]
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 3600)
    perform = performing.performer(tasks.backend_pid)
    first, second = perform([], {}), perform([], {})
    connection.close_at = time.monotonic() - 1
    third = perform([], {})
    connection.close()
    assert first == second != third
