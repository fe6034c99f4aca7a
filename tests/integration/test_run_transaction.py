"""The commit of a run's own transaction ends in time, whatever blocks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.domain.settling import Succeeded, settle
from holdfast.domain.values import Settlement
from holdfast.drivers.psycopg import OwnConnection
from holdfast.worker.transactions import RunTransaction
from tests.integration.jobs_support import Stage, new_run
from tests.integration.wire import Wire

DEADLINE = 30.0


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    stage = Stage(database_url)
    yield stage
    stage.close()


def success(stage: Stage) -> Settlement:
    stage.submit(new_run())
    (claim,) = stage.claim()
    return settle(claim, Succeeded("null"), 0.5)


def committed(transaction: RunTransaction, settlement: Settlement) -> BaseException | bool:
    """Return what a commit returns or raises. It runs in a thread, because a commit without a limit would never end."""
    found: list[BaseException | bool] = []

    def commit() -> None:
        try:
            found.append(transaction.commit(settlement))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            found.append(error)

    thread = threading.Thread(target=commit, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert found, "the commit does not end"
    return found[0]


def test_a_commit_without_a_conflict_succeeds(database_url: str, stage: Stage) -> None:
    settlement = success(stage)
    connection = OwnConnection.begin_for_task(database_url)
    assert committed(RunTransaction(connection, stage.worker, 20.0), settlement) is True
    assert connection.closed


def test_a_commit_gives_up_on_a_lock_that_another_transaction_holds(database_url: str, stage: Stage) -> None:
    settlement = success(stage)
    with psycopg.connect(database_url) as other:
        other.execute("select from holdfast.leases for update")
        connection = OwnConnection.begin_for_task(database_url)
        assert isinstance(
            committed(RunTransaction(connection, stage.worker, 0.5), settlement),
            psycopg.errors.LockNotAvailable | psycopg.errors.QueryCanceled,
        )
        assert connection.closed
    assert stage.connection.execute("select count(*) from holdfast.attempts").fetchall() == [(0,)]


def test_a_commit_gives_up_on_a_server_that_does_not_answer(wire: Wire, stage: Stage) -> None:
    settlement = success(stage)
    connection = OwnConnection.begin_for_task(wire.url)
    transaction = RunTransaction(connection, stage.worker, 0.5)
    wire.swallow()
    assert isinstance(committed(transaction, settlement), psycopg.OperationalError)
    assert connection.closed
