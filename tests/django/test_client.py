"""Holdfast's client and jobs on Django's connection, in Django's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from holdfast import AsyncClient, Client
from holdfast.client import shared
from holdfast.django import client, job_task
from holdfast.django.compat import task_backends
from holdfast.django.models import Job, Run
from holdfast.domain.errors import ConfigurationError, KeyReused
from holdfast.jobs import Jobs
from holdfast.runtime.settings import Settings
from tests.django.app import tasks
from tests.django.app.models import Note
from tests.django.conftest import Work
from tests.django.test_transactions import Undo, count_committed


@pytest.fixture
def site(site: str) -> Iterator[str]:
    yield site
    shared.close()


def test_committed_block_submits_with_its_rows(site: str) -> None:
    with transaction.atomic():
        Note.objects.create(text="paid")
        client().on(connection).submit("mock", {"seconds": 0})
        assert count_committed(site) == 0
    assert (Note.objects.count(), count_committed(site)) == (1, 1)


def test_rolled_back_block_submits_nothing(site: str) -> None:
    with suppress(Undo), transaction.atomic():
        client().on(connections["default"]).submit("mock", {"seconds": 0})
        client().on(connection).submit_many("mock", [{"seconds": 0}, {"seconds": 1}])
        raise Undo
    assert count_committed(site) == 0


def test_rolled_back_savepoint_rolls_back_its_run(site: str) -> None:
    with transaction.atomic():
        kept = client().on(connection).submit("mock", {"seconds": 0})
        with suppress(Undo), transaction.atomic():
            client().on(connection).submit("mock", {"seconds": 1})
            raise Undo
    assert [str(run.id) for run in Run.objects.all()] == [kept.id]


def test_call_outside_of_a_block_commits_by_itself(site: str) -> None:
    runs = client().on(connection).submit_many("mock", [{"seconds": 0}, {"seconds": 1}])
    assert (len(runs), count_committed(site)) == (2, 2)
    assert client().on(connection).cancel(runs[0]).status == "CANCELLED"
    assert client().get(runs[0]).status == "CANCELLED"


def test_refused_call_leaves_the_transaction_usable(site: str) -> None:
    with transaction.atomic():
        borrowed = client().on(connection)
        borrowed.submit("mock", {"seconds": 0}, key="once")
        with pytest.raises(KeyReused):
            borrowed.submit("mock", {"seconds": 1}, key="once")
        Note.objects.create(text="after")
    assert (Note.objects.count(), count_committed(site)) == (1, 1)


async def test_asynchronous_client_says_where_the_transaction_is(async_site: str) -> None:
    async with AsyncClient(Settings(database_url=async_site)) as asynchronous:
        with pytest.raises(ConfigurationError, match="sync_to_async"):
            asynchronous.on(connection)


async def test_coroutine_joins_the_transaction_in_its_thread(async_site: str) -> None:
    def order() -> None:
        with Client(Settings(database_url=async_site)) as own, suppress(Undo), transaction.atomic():
            own.on(connection).submit("mock", {"seconds": 0})
            raise Undo

    await sync_to_async(order)()
    assert count_committed(async_site) == 0


def test_job_of_django_tasks_exists_if_and_only_if_the_block_commits(site: str, work: Work) -> None:
    parts = [
        job_task(tasks.write_note, "first") | {"key": "first"},
        job_task(tasks.write_note.using(queue_name="mail"), text="second") | {"depends_on": ["first"]},
    ]
    with suppress(Undo), transaction.atomic():
        Jobs(client().on(connection)).create_job("undone", parts)
        raise Undo
    assert (Job.objects.count(), count_committed(site)) == (0, 0)
    with transaction.atomic():
        made = Jobs(client().on(connection)).create_job("done", parts)
    work()
    assert list(Note.objects.order_by("pk").values_list("text", flat=True)) == ["first", "second"]
    assert Jobs(client()).get_job(made.id).status == "SUCCEEDED"
    result = task_backends["default"].get_result(str(Run.objects.get(queue="mail").pk))
    assert (result.status, result.task.func, result.kwargs) == (
        "SUCCESSFUL",
        tasks.write_note.func,
        {"text": "second"},
    )


def test_django_task_adds_tasks_to_its_job(site: str, work: Work) -> None:
    made = Jobs(client()).create_job("spread", [job_task(tasks.spread, 3)])
    work()
    work()
    assert sorted(Note.objects.values_list("text", flat=True)) == ["part 0", "part 1", "part 2"]
    found = Jobs(client()).get_job(made.id)
    assert (found.status, found.total_tasks) == ("SUCCEEDED", 4)
