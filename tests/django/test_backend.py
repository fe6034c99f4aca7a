"""Django's contract for a backend, on a real database."""

from __future__ import annotations

import sys
import types
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from holdfast.django import HoldfastBackend
from holdfast.django.compat import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task_backends,
)
from holdfast.django.results import find_task
from tests.django.app import tasks
from tests.django.conftest import Work


def test_enqueued_task_is_ready_then_successful(site: str, work: Work) -> None:
    before = timezone.now()
    result = tasks.add.enqueue(1, b=2)
    assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [1], {"b": 2})
    assert (result.attempts, result.started_at, result.finished_at) == (0, None, None)
    assert before - timedelta(minutes=1) < result.enqueued_at < timezone.now() + timedelta(minutes=1)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    work(worker_id="worker-1")
    result.refresh()
    assert (result.status, result.return_value, result.worker_ids) == (TaskResultStatus.SUCCESSFUL, 3, ["worker-1"])
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert (result.is_finished, result.attempts, result.errors, len(result.id) < 64) == (True, 1, [], True)


async def test_async_task_is_enqueued_and_read_asynchronously(async_site: str) -> None:
    result = await tasks.add_later.aenqueue(1, b=2)
    read = await tasks.add_later.aget_result(result.id)
    assert (read.status, read.args, read.kwargs, read.task) == ("READY", [1], {"b": 2}, tasks.add_later)
    await result.arefresh()


def test_async_tasks_run(site: str, work: Work) -> None:
    results = [tasks.add_later.enqueue(20, b=n) for n in range(5)]
    context = tasks.describe_later.enqueue()
    work()
    assert [tasks.add_later.get_result(one.id).return_value for one in results] == [20, 21, 22, 23, 24]
    assert tasks.describe_later.get_result(context.id).return_value == 1


def test_context_has_the_running_attempt(site: str, work: Work) -> None:
    result = tasks.describe.enqueue("x")
    work(worker_id="me")
    result.refresh()
    assert result.return_value == {"label": "x", "attempt": 1, "workers": ["me"], "status": "RUNNING"}


def test_failed_task_has_its_exception(site: str, work: Work) -> None:
    result = tasks.fail.enqueue("what happened")
    work()
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 1, 1)
    assert result.errors[0].exception_class is ValueError
    assert "what happened" in result.errors[0].traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_return_value_is_stored_as_json(site: str, work: Work) -> None:
    result, refused = tasks.pair.enqueue(), tasks.unusable.enqueue()
    work()
    result.refresh()
    refused.refresh()
    assert result.return_value == [1, "two"]
    assert (refused.status, refused.errors[0].exception_class) == ("FAILED", TypeError)


def test_result_names_the_task_as_it_was_enqueued(site: str) -> None:
    later = timezone.now() + timedelta(hours=1)
    changed = tasks.add.using(priority=7, queue_name="mail", run_after=later)
    read = tasks.add.get_result(changed.enqueue(1).id)
    assert read.task == changed
    assert (read.task.priority, read.task.queue_name, read.task.run_after) == (7, "mail", later)
    assert read.backend == "default"


def test_unknown_result_does_not_exist(site: str) -> None:
    backend = task_backends["default"]
    for unknown in ("", "x" * 70, "0" * 36, "01a1e9fe-48aa-7a4d-91a9-57ac76459c3f", "\0", None, 12):
        with pytest.raises(TaskResultDoesNotExist):
            backend.get_result(unknown)


def test_run_of_another_kind_of_task_is_not_a_result(site: str) -> None:
    from holdfast import Client
    from holdfast.runtime.settings import Settings

    with Client(Settings(database_url=site)) as client:
        run = client.submit("mock", {"seconds": 0})
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(run.id)


def test_result_of_another_task_mismatches(site: str) -> None:
    result = tasks.add.enqueue(1)
    with pytest.raises(TaskResultMismatch):
        tasks.echo.get_result(result.id)


def test_higher_priority_runs_first(site: str, work: Work, signals: list[tuple[str, Any, Any]]) -> None:
    for priority in (-100, 0, 100, 50):
        tasks.add.using(priority=priority).enqueue(priority)
    work(slots=1)
    started = [result.task.priority for name, _, result in signals if name == "started"]
    assert started == [100, 50, 0, -100]


def test_deferred_task_waits_for_its_time(site: str, work: Work) -> None:
    later = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    soon = tasks.add.using(run_after=timedelta(seconds=-1)).enqueue(2)
    work()
    later.refresh()
    soon.refresh()
    assert (later.status, soon.status) == ("READY", "SUCCESSFUL")


@pytest.mark.parametrize(
    "changes", [{"priority": 101}, {"priority": 0.5}, {"queue_name": "unknown"}, {"run_after": "naive"}]
)
def test_invalid_task_is_refused(site: str, changes: dict[str, Any]) -> None:
    if changes.get("run_after") == "naive":
        changes = {"run_after": timezone.now().replace(tzinfo=None)}
    with pytest.raises(InvalidTask):
        tasks.add.using(**changes)


def test_task_is_validated_again_when_it_is_enqueued(site: str) -> None:
    task = tasks.add.using(queue_name="mail")
    configured = {"default": {"BACKEND": "holdfast.django.HoldfastBackend", "QUEUES": ["default"]}}
    with override_settings(TASKS=configured), pytest.raises(InvalidTask):
        task.enqueue(1)


def test_result_survives_the_removal_of_its_queue_and_function(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = tasks.add.using(queue_name="mail").enqueue(1)
    monkeypatch.delattr(tasks, "add")
    configured = {"default": {"BACKEND": "holdfast.django.HoldfastBackend", "QUEUES": ["other"]}}
    with override_settings(TASKS=configured):
        read = task_backends["default"].get_result(result.id)
        assert (read.task.module_path, read.task.queue_name) == ("tests.django.app.tasks.add", "mail")
        with pytest.raises(ImportError, match="no longer exists"):
            read.task.call(1)
        read.refresh()


def test_stored_path_imports_no_module_outside_of_the_installed_apps(site: str) -> None:
    for path in ("antigravity.fly", "this.s", "os.system", "tests.django.app.models.Note"):
        assert isinstance(find_task(path).func, types.FunctionType)
        assert find_task(path).module_path == path
    assert "antigravity" not in sys.modules
    assert find_task("tests.django.app.tasks.add") is tasks.add


def test_two_aliases_keep_their_results_apart_by_name(site: str, work: Work) -> None:
    result = tasks.report.enqueue()
    assert (result.backend, task_backends["default"].get_result(result.id).backend) == ("reports", "reports")
    work(backend="reports")
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 2)


def test_backend_says_what_it_supports() -> None:
    flags = ("supports_defer", "supports_async_task", "supports_get_result", "supports_priority")
    assert all(getattr(HoldfastBackend, flag) for flag in flags)


def test_task_of_a_view_runs(site: str, work: Work) -> None:
    from tests.django.app.views import receipt

    result = receipt.enqueue(7)
    work()
    result.refresh()
    assert result.return_value == "receipt for 7"
