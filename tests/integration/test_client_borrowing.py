"""A client on a caller's connection that commits each statement, and the calls that it does not allow there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from holdfast import AsyncClient, Client
from holdfast.domain.errors import BadInput, KeyReused
from holdfast.drivers import psycopg as psycopg_driver
from holdfast.drivers import psycopg_async as async_driver
from holdfast.drivers import sqlalchemy as sqlalchemy_driver
from holdfast.jobs.facades import Jobs
from holdfast.ops import submit
from holdfast.runtime.settings import Settings
from holdfast.sql.statement import Op
from holdfast.verbs.options import Submission
from holdfast.verbs.submissions import prepare

MANY = [
    Submission("mock", {"seconds": 1}, {"key": "new"}),
    Submission("mock", {"seconds": 2}, {"key": "taken"}),
    Submission("mock", {"seconds": 3}),
]


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, doorbell="poll")


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with Client(settings) as client:
        yield client


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[sqlalchemy.Connection]:
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://",
        poolclass=sqlalchemy.pool.NullPool,
        creator=lambda: psycopg.connect(url),
        isolation_level="AUTOCOMMIT",
    )
    with engine.connect() as connection:
        yield connection


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Session]:
    with sqlalchemy_connection(url) as connection, Session(connection) as session:
        yield session


KINDS: dict[str, Callable[[str], Any]] = {
    "psycopg": lambda url: psycopg.connect(url, autocommit=True),
    "sqlalchemy connection": sqlalchemy_connection,
    "sqlalchemy session": sqlalchemy_session,
}


@pytest.mark.parametrize("kind", KINDS)
def test_many_runs_are_created_all_or_none_on_an_autocommit_connection(
    database_url: str, client: Client, kind: str
) -> None:
    first = client.submit("mock", {"seconds": 0}, key="taken")
    with KINDS[kind](database_url) as connection:
        with pytest.raises(KeyReused):
            client.on(connection).submit_many(MANY)
        assert [run.id for run in client.list()] == [first.id]
        # Without the conflict they exist at once, and the connection is unchanged.
        made = client.on(connection).submit_many([MANY[0], MANY[2]])
        assert {run.id for run in client.list()} == {first.id, *(run.id for run in made)}


async def test_many_runs_are_created_all_or_none_on_an_asynchronous_autocommit_connection(
    database_url: str, settings: Settings
) -> None:
    async with AsyncClient(settings) as client:
        await client.submit("mock", {"seconds": 0}, key="taken")
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
            with pytest.raises(KeyReused):
                await client.on(connection).submit_many(MANY)
            assert len(await client.list()) == 1
            await client.on(connection).submit_many([MANY[0], MANY[2]])
            assert len(await client.list()) == 3


def looked_at(op: Op[Any], look: Callable[[], None]) -> Generator[Any, Any, Any]:
    """An operation that calls `look` after each of its statements."""
    statement = next(op)
    while True:
        rows = yield statement
        look()
        try:
            statement = op.send(rows)
        except StopIteration as done:
            return done.value


_ADVISORY_LOCKS = """
    select count(*) from pg_locks join pg_database on pg_database.oid = pg_locks.database
    where locktype = 'advisory' and granted and datname = current_database()
"""


def test_dedupe_holds_its_lock_until_the_end_on_an_autocommit_connection(database_url: str, settings: Settings) -> None:
    new = prepare(settings, "mock", {"seconds": 0}, dedupe="active")
    with psycopg.connect(database_url, autocommit=True) as watching:
        held: list[int] = []

        def look() -> None:
            held.append(watching.execute(_ADVISORY_LOCKS).fetchall()[0][0])

        with psycopg.connect(database_url, autocommit=True) as connection:
            psycopg_driver.run(connection, looked_at(submit(new), look))
        with sqlalchemy_connection(database_url) as borrowed:
            sqlalchemy_driver.run(borrowed, looked_at(submit(new), look))

        async def asynchronously() -> None:
            async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
                await async_driver.run(connection, looked_at(submit(new), look))

        asyncio.run(asynchronously())
        assert len(held) >= 6
        assert set(held) == {1}
        look()
        assert held[-1] == 0


def test_transaction_begun_by_the_caller_on_an_autocommit_connection_stays_open(
    database_url: str, client: Client
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("begin")
        client.on(connection).submit_many([MANY[0], MANY[2]])
        assert client.list() == []
        connection.execute("rollback")
        assert client.list() == []


def test_calls_that_are_not_allowed_in_a_transaction_are_refused(database_url: str, client: Client) -> None:
    with psycopg.connect(database_url) as connection:
        borrowed = client.on(connection)
        jobs = Jobs(borrowed)
        some_id = client.submit("mock", {"seconds": 0}).id
        calls: list[Callable[[], object]] = [
            lambda: borrowed.drain_worker(some_id),
            lambda: borrowed.add_subscription("a", webhook="https://example.org/"),
            lambda: borrowed.rotate_secret("a"),
            lambda: borrowed.remove_subscription("a"),
            lambda: borrowed.pause_subscription("a"),
            lambda: borrowed.resume_subscription("a"),
            lambda: borrowed.redeliver(1),
            jobs.register_worker,
            lambda: jobs.worker_heartbeat(some_id),
            lambda: jobs.deregister_worker(some_id),
            lambda: jobs.wait_for_job(some_id),
            lambda: borrowed.wait(some_id),
        ]
        for call in calls:
            with pytest.raises(BadInput, match="your transaction"):
                call()
        borrowed.pause_queue("default")
        assert borrowed.cancel(some_id).status == "CANCELLED"


async def test_asynchronous_client_refuses_calls_that_are_not_allowed_in_a_transaction(
    database_url: str, settings: Settings
) -> None:
    async with (
        AsyncClient(settings) as client,
        await psycopg.AsyncConnection.connect(database_url) as connection,
    ):
        run = await client.submit("mock", {"seconds": 0})
        with pytest.raises(BadInput, match="your transaction"):
            await client.on(connection).drain_worker(run.id)
        with pytest.raises(BadInput, match="your transaction"):
            await client.on(connection).rotate_secret("a")
