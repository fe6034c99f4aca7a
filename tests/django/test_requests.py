"""Requests that enqueue: with ATOMIC_REQUESTS a request is one transaction, without it each statement is."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test import Client

from holdfast.django.models import Run
from tests.django.app.models import Note
from tests.django.conftest import Work
from tests.django.test_transactions import count_committed


@pytest.fixture
def atomic_requests(site: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    return site


@pytest.fixture
def visitor() -> Client:
    return Client(raise_request_exception=False)


def test_atomic_request_commits_its_task_with_its_rows(atomic_requests: str, visitor: Client, work: Work) -> None:
    assert visitor.get("/order/").status_code == 200
    work()
    assert [run.status for run in Run.objects.all()] == ["SUCCEEDED"]
    assert Note.objects.get().text == str(Run.objects.get().pk)


def test_atomic_request_that_fails_enqueues_nothing(atomic_requests: str, visitor: Client) -> None:
    assert visitor.get("/order/fail/").status_code == 500
    assert (Note.objects.count(), count_committed(atomic_requests)) == (0, 0)


def test_request_that_fails_keeps_its_task_without_atomic_requests(site: str, visitor: Client) -> None:
    assert visitor.get("/order/fail/").status_code == 500
    assert (Note.objects.count(), count_committed(site)) == (1, 1)


def test_task_enqueued_on_commit_follows_the_request(atomic_requests: str, visitor: Client) -> None:
    assert visitor.get("/order/after/").status_code == 200
    assert (Note.objects.count(), count_committed(atomic_requests)) == (1, 1)


def test_hint_to_workers_is_sent_only_after_the_commit(site: str) -> None:
    from tests.django.app.views import receipt

    with transaction.atomic():
        receipt.enqueue(1)
        [(_, send, _)] = [entry for entry in connection.run_on_commit if entry[1]]
        assert "ring" in repr(send)
    assert connection.run_on_commit == []
