"""Checks, migrations, and what the ORM may do with Holdfast's tables."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings

from holdfast.assembly.worker import WorkerRequest, worker_options
from holdfast.django.compat import task_backends
from holdfast.django.fields import ReadOnlyError
from holdfast.django.management.commands import holdfast_worker
from holdfast.django.migrating import apply
from holdfast.django.models import Attempt, Queue, Run, Worker
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import Settings
from holdfast.schema import migrate
from tests.conformance.test_prune import make_month
from tests.conftest import with_database
from tests.django.app import tasks
from tests.django.conftest import Work, use_database


def configured(**options: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": "holdfast.django.HoldfastBackend", "QUEUES": ["default"], "OPTIONS": options}}


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ({}, []),
        ({"RETRY": {"max_attempts": 5}, "TIMEOUT": 60}, []),
        ({"COLOUR": 1}, ["holdfast.E002"]),
        ({"DATABASE": "missing"}, ["holdfast.E003"]),
        ({"RETRY": {"max_attempts": 0}}, ["holdfast.E005"]),
        ({"RETRY": {"colour": 0}}, ["holdfast.E005"]),
        ({"QUEUE_RETRY": {"unknown": {"max_attempts": 2}}}, ["holdfast.W006"]),
        ({"TIMEOUT": "soon"}, ["holdfast.E007"]),
        ({"TIMEOUT": True}, ["holdfast.E007"]),
        ({"QUEUE_RETRY": ["mail"]}, ["holdfast.E005"]),
        ({"EXECUTOR": "threads"}, ["holdfast.E008"]),
    ],
    ids=str,
)
def test_check_reports_problems(options: dict[str, Any], codes: list[str]) -> None:
    with override_settings(TASKS=configured(**options)):
        assert [message.id for message in task_backends["default"].check()] == codes


def test_check_reports_the_missing_app(settings_without_app: None) -> None:
    assert [message.id for message in task_backends["default"].check()] == ["holdfast.E001"]


@pytest.fixture
def settings_without_app() -> Any:
    apps = ["django.contrib.contenttypes", "django.contrib.auth", "tests.django.app"]
    with override_settings(INSTALLED_APPS=apps, TASKS=configured()):
        yield


def test_models_need_no_migration(site: str) -> None:
    call_command("makemigrations", "holdfast", check=True, dry_run=True, verbosity=0)


def test_django_and_holdfast_agree_on_the_schema(site: str) -> None:
    with psycopg.connect(site) as connection:
        at = migrate.applied(connection)
        migrate.require(connection)
    assert at is not None
    assert at.sha256 == {one.number: one.sha256 for one in migrate.migrations()}
    assert at.number == migrate.latest()


def test_migrate_works_after_an_upgrade_by_holdfast(
    site: str, server_connection: psycopg.Connection, server_url: str
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(site)["dbname"]
    connections.close_all()
    server_connection.execute(f'drop database "{name}" with (force)')
    server_connection.execute(f'create database "{name}"')
    url = with_database(server_url, str(name))
    apply(url, "0003")
    with psycopg.connect(url) as connection:
        assert migrate.current(connection) == "0003"
    migrate.upgrade(url)
    apply(url, "0003")
    use_database(url)
    call_command("migrate", "holdfast", verbosity=0)
    test_django_and_holdfast_agree_on_the_schema(url)


def test_migration_does_not_change_other_databases(site: str) -> None:
    out = io.StringIO()
    with override_settings(TASKS=configured(DATABASE="elsewhere")):
        from holdfast.django.migrating import used_aliases

        assert used_aliases() == {"elsewhere"}
    call_command("migrate", "holdfast", stdout=out)
    assert "No migrations to apply" in out.getvalue()


def test_commands_on_a_database_without_tables_say_what_to_run(site: str, work: Work) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("drop schema holdfast cascade")
    with pytest.raises(CommandError, match=r"no Holdfast schema yet; run: manage\.py migrate"):
        work()
    said = io.StringIO()
    with pytest.raises(CommandError, match="Problems found: 1"):
        call_command("holdfast_doctor", stderr=said)
    assert "no Holdfast schema yet; run: manage.py migrate" in said.getvalue()


def test_models_read_runs_attempts_and_workers(site: str, work: Work) -> None:
    result = tasks.fail_twice.enqueue()
    work(worker_id="reader")
    run = Run.objects.get(pk=result.id)
    assert (run.task, run.status, run.attempt_count) == ("tests.django.app.tasks.fail_twice", "SUCCEEDED", 3)
    assert run.parameters == {"args": [], "kwargs": {}}
    assert [attempt.status for attempt in run.attempts.all()] == ["FAILED", "FAILED", "SUCCEEDED"]
    first = Attempt.objects.get(run=run, number=1)
    assert (first.error_class, first.error_message) == ("ConnectionError", "attempt 1")
    assert "ConnectionError" in (first.traceback or "")
    assert (first.executor, first.ray_job_id) == (None, None)
    assert [worker.name for worker in Worker.objects.all()] == ["reader"]
    assert Run.objects.filter(status="SUCCEEDED", task__endswith="fail_twice").count() == 1


def test_models_refuse_to_write(site: str) -> None:
    run = Run(id=tasks.add.enqueue(1).id)
    for change in (
        run.save,
        run.delete,
        Run.objects.all().delete,
        lambda: Run.objects.update(status="FAILED"),
        lambda: Queue.objects.create(name="x", paused_at=datetime.now(UTC)),
    ):
        with pytest.raises(ReadOnlyError):
            change()


@pytest.mark.parametrize(
    "options",
    [
        {"backend": "missing"},
        {"queue_name": "unknown"},
        {"exclude_queues": "mail"},
        {"backend": "reports", "queue_name": "*", "exclude_queues": "mail"},
        {"reload": True},
    ],
    ids=str,
)
def test_worker_refuses_invalid_options(site: str, work: Work, options: dict[str, Any]) -> None:
    with pytest.raises(CommandError):
        work(**options)


def test_worker_serves_only_the_given_queues(site: str, work: Work) -> None:
    results = [tasks.add.using(queue_name=name).enqueue(1) for name in ("default", "mail", "slow")]

    def statuses() -> list[str]:
        for result in results:
            result.refresh()
        return [str(result.status) for result in results]

    work(queue_name="mail")
    assert statuses() == ["READY", "SUCCESSFUL", "READY"]
    work(queue_name="*", exclude_queues="default")
    assert statuses() == ["READY", "SUCCESSFUL", "SUCCESSFUL"]
    work()
    assert statuses() == ["SUCCESSFUL"] * 3


def test_cancel_prune_and_doctor_commands_work(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = tasks.add.enqueue(1)
    call_command("holdfast_doctor")
    assert "no worker is alive" in capsys.readouterr().out
    call_command("holdfast_cancel", result.id)
    result.refresh()
    assert (result.status, capsys.readouterr().out) == ("FAILED", f"{result.id} cancelled\n")
    with pytest.raises(CommandError, match="1 of 1"):
        call_command("holdfast_cancel", "unknown")
    call_command("holdfast_prune", min_age_days=30)
    assert "removed months: none" in capsys.readouterr().out


def test_prune_removes_months_that_are_old_enough(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(site, autocommit=True) as connection:
        month = make_month(connection)
    ages = (datetime.now(UTC) - datetime(2001, 6, 1, tzinfo=UTC)).days

    def prune(*options: str) -> str:
        call_command("holdfast_prune", *options)
        return capsys.readouterr().out

    assert prune("--dry-run", "--min-age-days=14", "--queue-name=*") == f"would remove {month}: about 0 runs\n"
    assert prune("--min-age-days=14", f"--failed-min-age-days={ages + 1}") == "removed months: none\n"
    assert prune("--min-age-days=14", f"--failed-min-age-days={ages - 1}") == f"removed months: {month}\n"
    assert prune("--dry-run") == "would remove nothing\n"
    with pytest.raises(CommandError, match="all queues"):
        prune("--queue-name=default")
    with pytest.raises(CommandError, match="at least 1"):
        prune("--failed-min-age-days=0")


def test_interval_is_the_poll_interval_of_an_idle_worker(
    site: str, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[WorkerRequest] = []
    monkeypatch.setattr(holdfast_worker, "run_worker", lambda settings, request: given.append(request))
    for options in ({}, {"interval": "2.5"}, {"interval": "0"}):
        parsed = ["--skip-checks", *(f"--{name}={value}" for name, value in options.items())]
        call_command("holdfast_worker", *parsed)
    assert [request.poll_seconds for request in given] == [None, 2.5, 0.1]
    with Runtime(Settings(database_url=site)) as runtime:
        paces = [
            (made.poll_every, made.poll_every_listening) for made in (worker_options(runtime, one) for one in given)
        ]
    assert paces == [(1.0, 8.0), (2.5, 2.5), (0.1, 0.1)]
    with pytest.raises(CommandError, match="zero or more"):
        call_command("holdfast_worker", "--interval=nan")
