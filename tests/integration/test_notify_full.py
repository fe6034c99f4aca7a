"""Everything works while the server's notification queue is full: a doorbell only shortens the wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import AsyncClient, Client
from holdfast.doctor.database import Target, doorbell
from holdfast.drivers.prepared import USES
from holdfast.embedded import ensure_running
from holdfast.http import create_app
from holdfast.http.service import EXTENSION
from holdfast.runtime.runtime import connect
from holdfast.runtime.settings import Settings
from holdfast.schema import migrate
from tests.integration.worker_support import Stage


def fill(connection: psycopg.Connection) -> None:
    """Send notifications until the server rejects them."""
    for n in range(1000):
        try:
            connection.execute("select pg_notify('elsewhere', repeat('x', 7000) || %s)", [str(n)])
        except psycopg.errors.ProgramLimitExceeded:
            return
    raise AssertionError("the queue does not fill")


@pytest.fixture
def full_url(home: Path) -> Iterator[str]:
    """A database on a server whose notification queue has the minimum size and is full."""
    with ensure_running(home, durable=False) as server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("alter system set max_notify_queue_pages = 64")
    with ensure_running(home, durable=False) as server:
        migrate.upgrade(server.url)
        with (
            psycopg.connect(server.url, autocommit=True) as listener,
            psycopg.connect(server.url, autocommit=True) as connection,
        ):
            # A listener is stuck in a transaction, so nothing leaves the queue.
            listener.execute("listen elsewhere")
            listener.execute("begin")
            listener.execute("select 1")
            fill(connection)
            yield server.url


def test_each_run_is_submitted_once_while_the_notification_queue_is_full(full_url: str) -> None:
    with Client(Settings(database_url=full_url)) as client:
        first = client.submit("mock", {"seconds": 0})
        keyed = client.submit("mock", {"seconds": 0}, key="k", queue="other")
        assert [first.created, keyed.created] == [True, True]
        assert client.submit("mock", {"seconds": 0}, key="k", queue="other").id == keyed.id
        many = client.submit_many("mock", [{"seconds": 0}, {"seconds": 1}])
        assert {run.id for run in client.list()} == {first.id, keyed.id, *(run.id for run in many)}
        # For a while, the client does not try to send hints with statements.
        assert not client._links.get().bell.may_send_inline("a queue that was never rung")
        assert client.cancel(first).status == "CANCELLED"
        assert client.retry(first).status == "PENDING"


def test_a_submit_that_is_executed_by_name_is_repeated_while_the_notification_queue_is_full(full_url: str) -> None:
    """The error comes at the commit, after the rows."""
    with Client(Settings(database_url=full_url), max_connections=1) as client:
        links = client._links.get()
        for _ in range(USES + 2):
            links.bell._inline_from = 0.0  # type: ignore[attr-defined]
            links.bell._sent_at.clear()  # type: ignore[attr-defined]
            assert client.submit("mock", {"seconds": 0}).created
        with links.pool.connection() as connection:
            assert any("true, true)" in sql for sql in connection.prepared.known)  # type: ignore[union-attr]
        assert len(client.list()) == USES + 2


async def test_asynchronous_client_submits_while_the_notification_queue_is_full(full_url: str) -> None:
    async with AsyncClient(Settings(database_url=full_url)) as client:
        run = await client.submit("mock", {"seconds": 0})
        assert run.created
        assert [one.id for one in await client.list()] == [run.id]
        assert (await client.cancel(run)).status == "CANCELLED"


def test_runs_are_submitted_over_http(full_url: str) -> None:
    app = create_app(Settings(database_url=full_url))
    try:
        answer = app.test_client().post("/runs", json={"model": "mock"}, headers={"Host": "127.0.0.1"})
        assert answer.status_code == 201
    finally:
        app.extensions[EXTENSION].close()


def test_a_worker_finishes_runs_and_releases_those_that_depend_on_them(full_url: str, tmp_path: Path) -> None:
    stage = Stage(full_url, tmp_path)
    try:
        first = stage.client.submit("mock", {"seconds": 0})
        second = stage.client.submit("mock", {"seconds": 0}, depends_on=[first])
        with stage.worker("inline"):
            assert stage.ended(second).status == "SUCCEEDED"
    finally:
        stage.close()


def test_the_doctor_says_that_the_queue_is_full(full_url: str) -> None:
    with connect(full_url) as connection:
        target = Target(Settings(database_url=full_url), full_url, connection)
        assert "notification queue is full" in str(doorbell(target).detail)
