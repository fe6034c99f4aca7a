"""What Holdfast offers beyond Django's contract."""

from __future__ import annotations

import pytest
from django.test import override_settings

from holdfast import KeyReused
from holdfast.django import cancel, enqueue_many, enqueue_with_key, progress, retry, run_of, task, why
from holdfast.django.compat import InvalidTask, task_backends
from holdfast.domain.errors import BadInput, RunCancelled, RunEnded, RunNotFound
from tests.django.app import tasks
from tests.django.conftest import Work


def test_same_key_gives_the_same_result(site: str) -> None:
    first = enqueue_with_key(tasks.add, "order-1", 1, b=2)
    again = enqueue_with_key(tasks.add, "order-1", 1, b=2)
    assert (again.id, again.args, again.kwargs) == (first.id, [1], {"b": 2})
    with pytest.raises(KeyReused):
        enqueue_with_key(tasks.add, "order-1", 1, b=3)
    with pytest.raises(BadInput):
        enqueue_with_key(tasks.add, "an order", 1)


def test_batch_is_enqueued_in_order(site: str, work: Work) -> None:
    results = enqueue_many(tasks.add, [((n,), {"b": 10}) for n in range(20)])
    assert enqueue_many(tasks.add, []) == []
    work()
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == list(range(10, 30))


def test_one_invalid_call_refuses_the_whole_batch(site: str) -> None:
    with pytest.raises(TypeError):
        enqueue_many(tasks.add, [((1,), {}), ((object(),), {})])
    from holdfast.django.models import Run

    assert Run.objects.count() == 0


def test_cancelled_task_has_failed_with_its_own_error(site: str, work: Work) -> None:
    result = tasks.add.enqueue(1)
    assert cancel(result.id).status == "CANCELLED"
    work()
    result.refresh()
    assert (result.status, result.attempts, result.started_at) == ("FAILED", 0, None)
    assert [error.exception_class for error in result.errors] == [RunCancelled]
    assert retry(result, by="someone").status == "PENDING"
    work()
    result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", 2)
    with pytest.raises(RunEnded):
        cancel(result)


def test_why_and_progress_are_available_for_a_result(site: str, work: Work) -> None:
    result = tasks.count_to.enqueue(3)
    [reason] = why(result)
    assert (reason.code, reason.detail) == (
        "no-worker",
        "no worker is alive; start one with: manage.py holdfast_worker",
    )
    assert progress(result) is None
    work()
    assert progress(result) == {"done": 3, "total": 3, "unit": "steps"}
    assert [reason.code for reason in why(result.id)] == ["ended"]
    assert (run_of(result).task, run_of(result).queue) == ("tests.django.app.tasks.count_to", "default")


def test_unknown_run_is_not_found(site: str) -> None:
    for unknown in ("x", "01a1e9fe-48aa-7a4d-91a9-57ac76459c3f"):
        with pytest.raises(RunNotFound):
            run_of(unknown)


def test_queue_has_its_own_retry_policy(site: str, work: Work) -> None:
    result = tasks.report.using(queue_name="patient").enqueue()
    work(backend="reports", queue_name="patient")
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == ("FAILED", 5, 5)


def test_options_have_no_effect_on_other_backends(site: str) -> None:
    with override_settings(TASKS={"default": {"BACKEND": f"{_framework()}.backends.dummy.DummyBackend"}}):
        made = task(retry={"max_attempts": 3})(tasks.add.func)
        assert type(made) is task_backends["default"].task_class
        assert made.enqueue(1).status == "READY"
        with pytest.raises(BadInput, match="not a Holdfast backend"):
            enqueue_many(made, [])


def _framework() -> str:
    from holdfast.django.compat import FRAMEWORK

    return FRAMEWORK


def test_task_changes_to_another_kind_of_backend(site: str) -> None:
    configured = {
        "default": {"BACKEND": "holdfast.django.HoldfastBackend"},
        "dummy": {"BACKEND": f"{_framework()}.backends.dummy.DummyBackend"},
    }
    with override_settings(TASKS=configured):
        assert tasks.add.using(backend="dummy", priority=3).enqueue(1).status == "READY"


def test_unusable_option_is_refused_at_the_decorator() -> None:
    with pytest.raises(TypeError, match="colour"):
        task(colour="red")
    with pytest.raises(TypeError, match="colour"):
        tasks.add.using(colour="red")


def test_unusable_policy_is_refused_at_the_decorator() -> None:
    from tests.django.app import undecorated

    with pytest.raises(InvalidTask, match="max_attempts"):
        task(retry={"max_attempts": 0})(undecorated.work)
    with pytest.raises(InvalidTask, match="executor"):
        task(executor="moon")(undecorated.work)
