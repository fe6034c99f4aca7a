"""A run belongs to the transaction in which it is enqueued."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from holdfast.django import databases, enqueue_many
from holdfast.django.compat import InvalidTask
from holdfast.django.models import Run
from tests.django.app import tasks
from tests.django.app.models import Note


class Undo(Exception):
    """Rolls back a block."""


def count_committed(url: str) -> int:
    with psycopg.connect(url) as other:
        row = other.execute("select count(*) from holdfast.runs").fetchone()
        assert row is not None
        return int(row[0])


def test_rolled_back_transaction_enqueues_nothing(site: str) -> None:
    with suppress(Undo), transaction.atomic():
        tasks.add.enqueue(1)
        enqueue_many(tasks.add, [((2,), {}), ((3,), {})])
        raise Undo
    assert count_committed(site) == 0


def test_rolled_back_savepoint_rolls_back_its_run(site: str) -> None:
    with transaction.atomic():
        kept = tasks.add.enqueue(1)
        with suppress(Undo), transaction.atomic():
            tasks.add.enqueue(2)
            raise Undo
    assert [str(run.id) for run in Run.objects.all()] == [kept.id]


def test_run_is_invisible_to_workers_until_the_commit(site: str) -> None:
    with transaction.atomic():
        result = tasks.add.enqueue(1)
        assert count_committed(site) == 0
        result.refresh()
        assert result.status == "READY"
    assert count_committed(site) == 1


def test_statement_notifies_only_if_it_commits_by_itself(site: str) -> None:
    """A statement that notifies may lease its run to a worker, whose row it locks until the commit."""
    transaction.set_autocommit(False)
    try:
        assert not databases.may_send_inline("default", "a queue")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    with transaction.atomic():
        assert not databases.may_send_inline("default", "a queue")
    assert databases.may_send_inline("default", "a queue")


def test_run_and_row_are_committed_together(site: str) -> None:
    with transaction.atomic():
        Note.objects.create(text="paid")
        tasks.add.enqueue(1)
    assert (Note.objects.count(), count_committed(site)) == (1, 1)


def test_enqueue_after_commit_works(site: str) -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: tasks.add.enqueue(1))
        assert count_committed(site) == 0
    assert count_committed(site) == 1


async def test_asynchronous_enqueue_joins_the_transaction_of_its_thread(async_site: str) -> None:
    atomic = transaction.atomic()
    await sync_to_async(atomic.__enter__)()
    await tasks.add.aenqueue(1)
    assert await sync_to_async(lambda: connection.in_atomic_block)()
    await sync_to_async(atomic.__exit__)(Undo, Undo(), None)
    assert count_committed(async_site) == 0
    await tasks.add.aenqueue(2)
    assert count_committed(async_site) == 1


class Opaque:
    pass


BAD = {
    "object": Opaque(),
    "nan": math.nan,
    "infinity": math.inf,
    "nul": "\0",
    "half a surrogate pair": "\ud800",
    "key that is no text": {1: 2},
    "integer beyond 64 bits": 2**70,
    "bytes that are no text": b"\xff",
    "nested object": {"a": {"b": Opaque()}},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_arguments_leave_the_transaction_usable(site: str, bad: Any) -> None:
    with transaction.atomic():
        Note.objects.create(text="before")
        with pytest.raises((TypeError, ValueError), match="Unsupported"):
            tasks.echo.enqueue(bad)
        with pytest.raises((TypeError, ValueError), match="Unsupported"):
            tasks.echo.enqueue(value=bad)
        Note.objects.create(text="after")
    assert (Note.objects.count(), count_committed(site)) == (2, 0)


def test_nested_and_recursive_arguments_are_refused_before_any_sql(site: str) -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    recursive: list[Any] = []
    recursive.append(recursive)
    with transaction.atomic():
        for bad in (deep, recursive):
            with pytest.raises(TypeError, match="Unsupported type"):
                tasks.echo.enqueue(bad)
        assert Note.objects.count() == 0


def test_arguments_are_read_back_unchanged(site: str) -> None:
    given = {
        "float": 1.0,
        "big": 2**63,
        "text": "ü\u2028🙂",
        "none": None,
        "list": [1, [2.5]],
        "bool": True,
        "empty": {},
    }
    read = tasks.echo.get_result(tasks.echo.enqueue(*given.values(), **given).id)
    assert (read.args, read.kwargs) == (list(given.values()), given)
    assert type(read.kwargs["float"]) is float
    assert list(read.kwargs) == list(given)


@pytest.mark.parametrize(
    "changes",
    [
        {"queue_name": ""},
        {"queue_name": "a\0"},
        {"queue_name": "a" * 256},
        {"queue_name": 5},
        {"concurrency_key": ""},
        {"concurrency_key": "\ud800"},
        {"concurrency_key": 5},
        {"dedupe": "always"},
        {"dedupe": -1},
        {"dedupe": True},
        {"dedupe": timedelta.max},
    ],
)
def test_unusable_option_is_refused_and_the_transaction_stays_usable(site: str, changes: dict[str, Any]) -> None:
    with transaction.atomic():
        with pytest.raises(InvalidTask, match=f"{next(iter(changes))}=.* must be"):
            tasks.report.using(**changes).enqueue()
        tasks.report.enqueue()
    assert count_committed(site) == 1
