"""Statements on Django's connection: prepared on persistent connections, and never behind a pooler."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DataError, InternalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from psycopg.conninfo import conninfo_to_dict

from holdfast.django.models import Run
from holdfast.drivers import django as driver
from holdfast.drivers.django import PREPARE_AFTER
from holdfast.sql.statement import Statement, rows
from tests.conftest import with_database
from tests.django.app import tasks
from tests.django.conftest import use_database


def prepared() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from pg_prepared_statements")
        return int(cursor.fetchone()[0])


def by_name() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from pg_prepared_statements where starts_with(name, 'holdfast')")
        return int(cursor.fetchone()[0])


def enqueue(count: int) -> None:
    for number in range(count):
        tasks.add.enqueue(number)


def test_connection_of_a_short_request_prepares_nothing(site: str) -> None:
    enqueue(PREPARE_AFTER)
    assert prepared() == 0
    connection.close()
    enqueue(PREPARE_AFTER)
    assert prepared() == 0


def test_persistent_connection_prepares_its_statements_and_keeps_its_settings(site: str) -> None:
    enqueue(PREPARE_AFTER + 5)
    assert prepared() >= 1
    assert connection.connection.prepare_threshold is None
    assert Run.objects.count() == PREPARE_AFTER + 5


def test_prepared_statements_survive_a_rollback(site: str) -> None:
    enqueue(PREPARE_AFTER + 1)
    with suppress(ZeroDivisionError), transaction.atomic():
        enqueue(1)
        raise ZeroDivisionError
    with transaction.atomic():
        enqueue(2)
    assert Run.objects.count() == PREPARE_AFTER + 3


def test_enqueue_works_after_the_site_deallocated_its_statements(site: str) -> None:
    enqueue(PREPARE_AFTER + 1)
    with connection.cursor() as cursor:
        cursor.execute("discard all")
    enqueue(2)
    assert Run.objects.count() == PREPARE_AFTER + 3


def test_frequent_statement_is_executed_by_name_outside_a_transaction_only(site: str) -> None:
    enqueue(PREPARE_AFTER + 1)
    with transaction.atomic():
        enqueue(1)
    assert by_name() == 0
    enqueue(2)
    assert by_name() >= 1
    assert Run.objects.count() == PREPARE_AFTER + 4


def test_wrapper_of_queries_sees_every_statement(site: str) -> None:
    seen = []

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    enqueue(PREPARE_AFTER + 2)
    with connection.execute_wrapper(wrapper):
        enqueue(1)
    assert any("holdfast.create_run(" in sql for sql in seen)


def test_run_is_rolled_back_where_the_site_manages_transactions_itself(site: str) -> None:
    enqueue(PREPARE_AFTER + 2)
    transaction.set_autocommit(False)
    try:
        enqueue(1)
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert Run.objects.count() == PREPARE_AFTER + 2


def test_error_of_a_statement_executed_by_name_is_djangos_and_leaves_the_connection_usable(site: str) -> None:
    def divide(by: int) -> Any:
        return driver.run(connection, iter(Statement("select 6 / %(by)s::int", {"by": by}, rows)), prepare=True)

    enqueue(PREPARE_AFTER + 1)
    assert [divide(2), divide(3)] == [[(3,)], [(2,)]]
    assert by_name() == 1
    with pytest.raises(DataError, match="division by zero") as caught:
        divide(0)
    assert isinstance(caught.value.__cause__, psycopg.errors.DivisionByZero)
    assert divide(1) == [(6,)]


def test_connection_is_replaced_after_a_statement_executed_by_name_was_interrupted(site: str) -> None:
    enqueue(PREPARE_AFTER + 2)

    def wait(seconds: float) -> object:
        slow = Statement("select pg_sleep(%(seconds)s::float8)::text", {"seconds": seconds}, rows)
        return driver.run(connection, iter(slow), prepare=True)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before_that = by_name()
    wait(0.0)
    assert by_name() == before_that + 1
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            wait(30.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    enqueue(1)
    assert Run.objects.count() == PREPARE_AFTER + 3


def test_event_loop_may_not_enqueue_on_a_connection_of_its_thread(site: str) -> None:
    async def enqueue_in_a_loop() -> None:
        tasks.add.enqueue(1)

    enqueue(PREPARE_AFTER + 2)
    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(enqueue_in_a_loop())
    assert Run.objects.count() == PREPARE_AFTER + 2


def test_logged_query_has_its_parameters(site: str) -> None:
    enqueue(PREPARE_AFTER + 1)
    with CaptureQueriesContext(connection) as queries:
        result = tasks.add.enqueue(1)
    assert result.id in queries[0]["sql"]


def test_nothing_is_prepared_behind_a_pooler(site: str, pooler_url: str) -> None:
    use_database(with_database(pooler_url, str(conninfo_to_dict(site)["dbname"])))
    for _ in range(3):
        enqueue(PREPARE_AFTER)
        with transaction.atomic():
            enqueue(1)
    assert Run.objects.count() == 3 * (PREPARE_AFTER + 1)
    assert prepared() == 0


def test_statement_in_a_failed_transaction_is_refused_by_django(site: str) -> None:
    enqueue(PREPARE_AFTER)
    with suppress(ZeroDivisionError), transaction.atomic():
        with suppress(Exception), connection.cursor() as cursor:
            cursor.execute("select 1/0")
        with pytest.raises(InternalError, match="aborted"):
            enqueue(1)
        raise ZeroDivisionError
    enqueue(1)
    assert Run.objects.count() == PREPARE_AFTER + 1
