"""Each signal is sent once, with the class of the backend as its sender."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, connections, transaction

from holdfast import Client
from holdfast.django import HoldfastBackend, cancel, enqueue_many
from holdfast.django.compat import FRAMEWORK, task_finished
from holdfast.runtime.settings import Settings
from tests.django.app import tasks
from tests.django.conftest import Work
from tests.django.site_support import DEADLINE, eventually

Signals = list[tuple[str, Any, Any]]


def summary(signals: Signals) -> list[tuple[str, str, int]]:
    assert all(sender is HoldfastBackend for _, sender, _ in signals)
    return [(name, str(result.status), result.attempts) for name, _, result in signals]


def test_success_sends_each_signal_once(site: str, work: Work, signals: Signals) -> None:
    result = tasks.add.enqueue(1)
    assert summary(signals) == [("enqueued", "READY", 0)]
    work()
    assert summary(signals) == [("enqueued", "READY", 0), ("started", "RUNNING", 1), ("finished", "SUCCESSFUL", 1)]
    assert {sent.id for _, _, sent in signals} == {result.id}
    assert signals[-1][2].return_value == 2


def test_retried_task_starts_three_times_and_finishes_once(site: str, work: Work, signals: Signals) -> None:
    result = tasks.fail_twice.enqueue()
    work()
    started = [("started", "RUNNING", attempt) for attempt in (1, 2, 3)]
    assert summary(signals) == [("enqueued", "READY", 0), *started, ("finished", "SUCCESSFUL", 3)]
    result.refresh()
    assert [error.exception_class for error in result.errors] == [ConnectionError, ConnectionError]
    assert "attempt 1" in result.errors[0].traceback


def test_failure_is_announced_once(site: str, work: Work, signals: Signals) -> None:
    tasks.fail.enqueue("no")
    tasks.fail_for_good.enqueue()
    work()
    assert sorted(summary(signals)) == [
        *[("enqueued", "READY", 0)] * 2,
        *[("finished", "FAILED", 1)] * 2,
        *[("started", "RUNNING", 1)] * 2,
    ]


def test_many_tasks_are_announced_one_by_one(site: str, signals: Signals) -> None:
    results = enqueue_many(tasks.add, [((n,), {}) for n in range(3)])
    assert [sent.id for _, _, sent in signals] == [result.id for result in results]


async def test_asynchronous_enqueue_sends_the_signal(async_site: str, signals: Signals) -> None:
    await tasks.add.aenqueue(1)
    assert summary(signals) == [("enqueued", "READY", 0)]


def test_existing_run_is_not_announced_again(site: str, signals: Signals) -> None:
    first, second = tasks.refresh.enqueue("home"), tasks.refresh.enqueue("home")
    assert first.id == second.id
    assert len(signals) == 1


def test_cancelling_a_waiting_task_announces_its_end_after_the_commit(site: str, signals: Signals) -> None:
    result = tasks.add.enqueue(1)
    with transaction.atomic():
        cancel(result)
        cancel(result)
        assert len(signals) == 1
    assert summary(signals)[1:] == [("finished", "FAILED", 0)]


def test_cancelling_a_run_of_another_kind_of_task_sends_and_logs_nothing(
    site: str, signals: Signals, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(Settings(database_url=site)) as client:
        run = client.submit("mock", {"seconds": 0})
    with transaction.atomic():
        assert cancel(run.id).status == "CANCELLED"
    assert signals == []
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_failing_receiver_does_not_affect_the_task(site: str, work: Work) -> None:
    def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
        raise RuntimeError("a receiver that fails")

    task_finished.connect(receive)
    with suppress(RuntimeError):
        result = tasks.add.enqueue(1)
        work()
    task_finished.disconnect(receive)
    result.refresh()
    assert result.status == "SUCCESSFUL"


def test_django_logs_each_step(site: str, work: Work, caplog: Any) -> None:
    caplog.set_level("DEBUG", FRAMEWORK)
    result = tasks.fail.enqueue("no")
    work()
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == FRAMEWORK]
    path = f"id={result.id} path=tests.django.app.tasks.fail"
    assert lines == [
        ("DEBUG", f"Task {path} enqueued backend=default"),
        ("INFO", f"Task {path} state=RUNNING"),
        ("ERROR", f"Task {path} state=FAILED"),
    ]


async def test_asynchronous_enqueue_returns_the_existing_run(async_site: str, signals: Signals) -> None:
    first, second = await tasks.refresh.aenqueue("home"), await tasks.refresh.aenqueue("home")
    assert first.id == second.id
    assert len(signals) == 1


def test_two_concurrent_cancels_announce_the_end_once(site: str, signals: Signals) -> None:
    """The second cancel begins before the first commits, waits for it, and then finds the run cancelled."""
    result = tasks.add.enqueue(1)
    second_began = threading.Event()

    def second() -> None:
        try:
            second_began.set()
            cancel(result.id)
        finally:
            connections.close_all()

    thread = threading.Thread(target=second)
    with transaction.atomic():
        cancel(result)
        thread.start()
        second_began.wait(DEADLINE)
        eventually(is_waiting_for_a_lock)
    thread.join(DEADLINE)
    assert [name for name, _, _ in signals] == ["enqueued", "finished"]


def is_waiting_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("select pg_stat_clear_snapshot()")
        cursor.execute(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
        return bool(cursor.fetchone()[0])
