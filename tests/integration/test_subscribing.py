"""A subscription receives every run whose end is committed after it was acknowledged, whatever began first."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import ConfigurationError, SubscriptionNotReady
from holdfast.ops import outbox as outbox_ops
from tests.integration.outbox_support import OutboxStage
from tests.integration.worker_support import eventually


@pytest.fixture
def outbox(database_url: str) -> Iterator[OutboxStage]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield OutboxStage(connection)


@pytest.fixture
def other(outbox: OutboxStage, database_url: str) -> Iterator[OutboxStage]:
    """Another session of the same worker."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        other = OutboxStage.__new__(OutboxStage)
        other.connection, other.worker = connection, outbox.worker
        yield other


def delivered(outbox: OutboxStage, name: str) -> list[str]:
    outbox.do(outbox_ops.fan_out())
    found = outbox.connection.execute(
        "select run_id::text from holdfast.deliveries join holdfast.subscriptions on subscriptions.id = subscription_id"
        " where name = %s order by deliveries.id",
        [name],
    )
    return [row[0] for row in found.fetchall()]


def waits(database_url: str) -> bool:
    """Whether a new subscription waits for transactions to end."""
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "select from pg_stat_activity where datname = current_database()"
            " and query like '%virtualtransaction = any%' and pid <> pg_backend_pid()"
        )
        return found.fetchone() is not None


ENDINGS = {
    "finished": lambda outbox, run: outbox.end(run),
    "cancelled": lambda outbox, run: outbox.do(ops.cancel(run, "no need")),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("before", [False, True], ids=["the first subscription", "one of two"])
def test_a_run_whose_end_was_uncommitted_when_the_subscription_was_added_is_delivered(
    outbox: OutboxStage, other: OutboxStage, database_url: str, ending: str, before: bool
) -> None:
    if before:
        outbox.subscribe("earlier", "redis", "earlier")
    run = outbox.submit()
    other.connection.execute("begin")
    ENDINGS[ending](other, run)
    with ThreadPoolExecutor(1) as pool:
        added: Future[str] = pool.submit(outbox.subscribe, "late", "redis", "late")
        eventually(lambda: added.done() or waits(database_url))
        acknowledged_first = added.done()
        other.connection.execute("commit")
        added.result(30)
    if acknowledged_first or before:
        assert delivered(outbox, "late") == [run]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_run_that_ends_after_the_subscription_is_delivered(
    outbox: OutboxStage, other: OutboxStage, ending: str
) -> None:
    run = outbox.submit()
    outbox.subscribe("all", "redis", "all")
    other.connection.execute("begin")
    ENDINGS[ending](other, run)
    other.connection.execute("commit")
    assert delivered(outbox, "all") == [run]


def test_a_transaction_with_an_older_snapshot_still_writes_its_event(outbox: OutboxStage, other: OutboxStage) -> None:
    run = outbox.submit()
    other.connection.execute("begin isolation level repeatable read")
    other.all("select * from holdfast.subscriptions")
    outbox.subscribe("all", "redis", "all")
    other.do(ops.cancel(run, "no need"))
    other.connection.execute("commit")
    assert delivered(outbox, "all") == [run]


def test_a_subscription_is_not_added_while_a_transaction_that_ended_runs_stays_open(
    outbox: OutboxStage, other: OutboxStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_ops, "CHECKS", 3)
    run = outbox.submit()
    other.connection.execute("begin")
    other.end(run)
    with pytest.raises(SubscriptionNotReady, match="has been open"):
        outbox.subscribe("all", "redis", "all")
    assert outbox.all("select * from holdfast.subscriptions") == []
    other.connection.execute("rollback")
    outbox.subscribe("all", "redis", "all")


def test_an_open_read_transaction_does_not_delay_a_subscription(outbox: OutboxStage, other: OutboxStage) -> None:
    other.connection.execute("begin")
    other.all("select * from holdfast.attempts, holdfast.subscriptions")
    outbox.subscribe("all", "redis", "all")


def test_a_subscription_is_not_added_in_a_transaction_of_the_caller(outbox: OutboxStage) -> None:
    with (
        pytest.raises(ConfigurationError, match="cannot be added in your own transaction"),
        outbox.connection.transaction(),
    ):
        outbox.subscribe("all", "redis", "all")
    assert outbox.all("select * from holdfast.subscriptions") == []
