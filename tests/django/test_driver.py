"""Statements on Django's connection: prepared on persistent connections, and never behind a pooler."""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.db import InternalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from psycopg.conninfo import conninfo_to_dict

from holdfast.django.models import Run
from holdfast.drivers.django import PREPARE_AFTER
from tests.conftest import with_database
from tests.django.app import tasks
from tests.django.conftest import use_database


def prepared() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from pg_prepared_statements")
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
