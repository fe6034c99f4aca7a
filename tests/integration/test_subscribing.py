"""A subscription hears of every ending that is committed after it was acknowledged, whatever began first."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import ConfigurationError, SubscriptionNotReady
from holdfast.ops import outbox
from tests.integration.outbox_support import Floor
from tests.integration.worker_support import eventually


@pytest.fixture
def floor(database_url: str) -> Iterator[Floor]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Floor(connection)


@pytest.fixture
def other(floor: Floor, database_url: str) -> Iterator[Floor]:
    """Another session of the same worker."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        other = Floor.__new__(Floor)
        other.connection, other.worker = connection, floor.worker
        yield other


def delivered(floor: Floor, name: str) -> list[str]:
    floor.do(outbox.fan_out())
    found = floor.connection.execute(
        "select run_id::text from holdfast.deliveries join holdfast.subscriptions on subscriptions.id = subscription_id"
        " where name = %s order by deliveries.id",
        [name],
    )
    return [row[0] for row in found.fetchall()]


def waits(database_url: str) -> bool:
    """Whether a new subscription waits for transactions to end."""
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "select from pg_stat_activity where query like '%virtualtransaction = any%' and pid <> pg_backend_pid()"
        )
        return found.fetchone() is not None


ENDINGS = {
    "finished": lambda floor, run: floor.end(run),
    "cancelled": lambda floor, run: floor.do(ops.cancel(run, "no need")),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("before", [False, True], ids=["the first subscription", "one of two"])
def test_a_run_whose_end_was_uncommitted_when_the_subscription_was_added_is_delivered(
    floor: Floor, other: Floor, database_url: str, ending: str, before: bool
) -> None:
    if before:
        floor.subscribe("earlier", "redis", "earlier")
    run = floor.submit()
    other.connection.execute("begin")
    ENDINGS[ending](other, run)
    with ThreadPoolExecutor(1) as pool:
        added: Future[str] = pool.submit(floor.subscribe, "late", "redis", "late")
        eventually(lambda: added.done() or waits(database_url))
        acknowledged_first = added.done()
        other.connection.execute("commit")
        added.result(30)
    if acknowledged_first or before:
        assert delivered(floor, "late") == [run]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_run_that_ends_after_the_subscription_is_delivered(floor: Floor, other: Floor, ending: str) -> None:
    run = floor.submit()
    floor.subscribe("all", "redis", "all")
    other.connection.execute("begin")
    ENDINGS[ending](other, run)
    other.connection.execute("commit")
    assert delivered(floor, "all") == [run]


def test_a_transaction_with_an_older_snapshot_still_writes_its_event(floor: Floor, other: Floor) -> None:
    run = floor.submit()
    other.connection.execute("begin isolation level repeatable read")
    other.all("select * from holdfast.subscriptions")
    floor.subscribe("all", "redis", "all")
    other.do(ops.cancel(run, "no need"))
    other.connection.execute("commit")
    assert delivered(floor, "all") == [run]


def test_a_subscription_is_not_added_while_a_transaction_that_ended_runs_stays_open(
    floor: Floor, other: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "LOOKS", 3)
    run = floor.submit()
    other.connection.execute("begin")
    other.end(run)
    with pytest.raises(SubscriptionNotReady, match="has been open"):
        floor.subscribe("all", "redis", "all")
    assert floor.all("select * from holdfast.subscriptions") == []
    other.connection.execute("rollback")
    floor.subscribe("all", "redis", "all")


def test_an_open_read_transaction_does_not_delay_a_subscription(floor: Floor, other: Floor) -> None:
    other.connection.execute("begin")
    other.all("select * from holdfast.attempts, holdfast.subscriptions")
    floor.subscribe("all", "redis", "all")


def test_a_subscription_is_not_added_in_a_transaction_of_the_caller(floor: Floor) -> None:
    with (
        pytest.raises(ConfigurationError, match="cannot be added in your own transaction"),
        floor.connection.transaction(),
    ):
        floor.subscribe("all", "redis", "all")
    assert floor.all("select * from holdfast.subscriptions") == []
