"""Through PgBouncer in transaction mode: every part works, and leaves nothing behind in the server's sessions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast import observe
from holdfast.assembly.worker import listen_to
from holdfast.client import AsyncClient, Client, shared
from holdfast.doctor.database import Target, doorbell, pooler
from holdfast.doctor.finding import State
from holdfast.domain.states import Status
from holdfast.drivers import psycopg as driver
from holdfast.drivers import sessions
from holdfast.drivers.psycopg import OwnConnection
from holdfast.drivers.psycopg_async import AsyncOwnConnection
from holdfast.http import create_app
from holdfast.http.service import EXTENSION
from holdfast.jobs import sync
from holdfast.rq import execute_run
from holdfast.schema import migrate
from holdfast.sql import ready
from holdfast.testing.databases import scratch
from tests.databases import with_database
from tests.integration.rq_support import RqStage
from tests.integration.worker_support import Stage, kill_tree
from tests.servers import pgbouncer

EXECUTORS = ["inline", "process"]


@pytest.fixture
def stage(pooled_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(pooled_url, tmp_path, tasks=("tests.integration.worker_tasks", "tests.integration.job_tasks"))
    yield stage
    stage.close()


def test_a_pooler_is_detected_and_a_direct_connection_is_not(pooled_url: str, database_url: str) -> None:
    with OwnConnection.connect(pooled_url, session=sessions.CLIENT) as pooled:
        assert pooled.pooled
        assert pooled.prepare_threshold is None
    with OwnConnection.connect(database_url, session=sessions.CLIENT) as direct:
        assert not direct.pooled
        assert direct.prepare_threshold is not None


@pytest.mark.parametrize(
    ("setting", "pooled", "prepares"), [("on", True, False), ("off", False, True), ("prepared", True, True)]
)
def test_the_setting_overrides_the_detection(database_url: str, setting: str, pooled: bool, prepares: bool) -> None:
    with OwnConnection.connect(database_url, session=sessions.CLIENT, pooler=setting) as connection:
        assert (connection.pooled, connection.prepare_threshold is not None) == (pooled, prepares)


def test_settings_do_not_leak_into_sessions_of_the_server(server_url: str, database_url: str) -> None:
    """With one server process for all clients, each would inherit what another one set."""
    with pgbouncer(server_url, default_pool_size=1) as url:
        shared = with_database(url, str(conninfo_to_dict(database_url)["dbname"]))
        names = list(sessions.worker("worker", moving=True, limit=15.0).settings(150000))
        with psycopg.connect(shared, autocommit=True) as plain:

            def values() -> list[Any]:
                return [plain.execute("select current_setting(%s)", [name]).fetchone() for name in names]

            before = values()
            session = sessions.worker("worker", moving=True, limit=15.0)
            with OwnConnection.connect(shared, session=session) as connection:
                assert values() == before
                driver.transact(connection, lambda: iter(ready.look(["echo"])))
                assert values() == before
            with OwnConnection.connect(shared, session=sessions.API_BELL) as connection:
                connection.execute("select pg_notify('holdfast', 'x')")
                assert plain.execute("show synchronous_commit").fetchone() == ("on",)


def test_each_transaction_applies_the_session_settings(pooled_url: str) -> None:
    session = sessions.worker("worker", moving=True, limit=15.0)
    with OwnConnection.connect(pooled_url, session=session) as connection:
        names = [*session.settings(connection.info.server_version), "transaction_isolation", "transaction_read_only"]
        names = [name for name in names if not name.startswith("default_transaction")]
        with driver.transaction(connection):
            found = {name: connection.execute("select current_setting(%s)", [name]).fetchone()[0] for name in names}  # type: ignore[index]
        assert found["jit"] == found["enable_seqscan"] == "off"
        assert (found["lock_timeout"], found["timezone"]) == ("100ms", "UTC")
        assert (found["transaction_isolation"], found["transaction_read_only"]) == ("read committed", "off")


@pytest.mark.parametrize("executor", EXECUTORS)
def test_runs_end_through_a_pooler(stage: Stage, executor: str) -> None:
    runs = [stage.submit("echo", value=n) for n in range(60)]
    failing = stage.submit("fail", times=1)
    with stage.worker(executor):
        assert [stage.ended(run).result() for run in runs] == list(range(60))
        assert stage.ended(failing).status is Status.SUCCEEDED
    assert [number for number, *_ in stage.attempts(failing)] == [1, 2]


def test_a_run_is_cancelled_and_retried_through_a_pooler(stage: Stage) -> None:
    run = stage.submit("patient", started=str(stage.file("started")))
    with stage.worker("process"):
        stage.said("started")
        run.cancel()
        assert stage.ended(run).status is Status.CANCELLED
    reopened = stage.client.retry(run)
    assert reopened.status is Status.PENDING
    stage.client.cancel(reopened)


def test_runs_of_a_killed_worker_are_rescued_through_a_pooler(stage: Stage) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    first = stage.start("--slots", "1")
    stage.said("started")
    kill_tree(first)
    stage.file("go").touch()
    stage.start("--slots", "1")
    assert stage.ended(run, 60.0).status is Status.SUCCEEDED
    assert [(number, status) for number, status, *_ in stage.attempts(run)] == [(1, "LOST"), (2, "SUCCEEDED")]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_runs_own_transaction_commits_with_its_success_through_a_pooler(stage: Stage, executor: str) -> None:
    stage.query("create table effects (attempt integer)")
    run = stage.submit("writing", table="effects", fail_times=1)
    with stage.worker(executor):
        assert stage.ended(run).status is Status.SUCCEEDED
    assert stage.query("select attempt from effects") == [(2,)]


def test_a_job_ends_through_a_pooler(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_TEST_RUN_DIRECTORY")
    for name in ("database_url", "artifacts"):
        monkeypatch.setenv(f"HOLDFAST_{name.upper()}", getattr(stage.settings, name))
    monkeypatch.setenv("HOLDFAST_TASKS", ",".join(stage.settings.tasks))
    path = str(stage.file("notes"))
    note = {"entrypoint": "job.note", "kwargs": {"path": path, "text": "a"}}
    with stage.worker("inline"):
        job = sync.create_job("pooled", [{**note, "key": "a"}, {**note, "depends_on": ["a"]}])
        assert sync.wait_for_job(job, 60).status == "SUCCEEDED"
    shared.close()


async def test_an_asynchronous_client_works_through_a_pooler(stage: Stage) -> None:
    async with AsyncClient(stage.settings) as client:
        runs = await asyncio.gather(*(client.submit("echo", {"value": n}) for n in range(40)))
        assert len(await client.list(limit=50)) == 40
        assert (await client.cancel(runs[0])).status is Status.CANCELLED


def test_many_threads_submit_through_a_pooler(stage: Stage) -> None:
    with ThreadPoolExecutor(8) as threads:
        runs = list(threads.map(lambda n: stage.submit("echo", value=n), range(200)))
    assert len({run.id for run in runs}) == 200


def test_the_api_submits_and_waits_through_a_pooler(stage: Stage) -> None:
    app = create_app(stage.settings)
    try:
        api = app.test_client()
        with stage.worker("inline"):
            answers = [api.post("/runs", json={"model": "echo", "parameters": {"value": n}}) for n in range(20)]
            assert {answer.status_code for answer in answers} == {201}
            ended = api.get(f"/runs/{answers[0].json['run_id']}?wait=20")  # type: ignore[index]
            assert ended.json["status"] == "SUCCEEDED"  # type: ignore[index]
    finally:
        app.extensions[EXTENSION].close()


@pytest.mark.redis
def test_rq_executes_runs_through_a_pooler(
    pooled_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = RqStage(pooled_url, redis_url, tmp_path)
    try:
        stage.enter(monkeypatch)
        run = stage.submit("note", path=str(tmp_path / "said"))
        execute_run(run.id)
        assert run.refresh().result() == 1
    finally:
        stage.close()


_ADVISORY_LOCKS = """
    select count(*) from pg_locks join pg_database on pg_database.oid = pg_locks.database
    where locktype = 'advisory' and datname = current_database()
"""


def test_a_database_is_migrated_through_a_pooler(server_url: str, pooler_url: str) -> None:
    with scratch(server_url) as url:
        pooled = with_database(pooler_url, str(conninfo_to_dict(url)["dbname"]))
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(migrate.upgrade, [pooled] * 3))
        with psycopg.connect(url) as connection:
            assert migrate.current(connection) == migrate.latest()
            assert connection.execute(_ADVISORY_LOCKS).fetchone() == (0,)


def test_a_listener_reports_once_that_a_pooler_does_not_forward_notifications(
    pooled_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.doorbells.listen.BLOCKED_PAUSE", 0.01)
    said: list[dict[str, Any]] = []
    connected = threading.Semaphore(0)
    real = AsyncOwnConnection.connect

    async def connect(*args: Any, **kwargs: Any) -> Any:
        connected.release()
        return await real(*args, **kwargs)

    monkeypatch.setattr(AsyncOwnConnection, "connect", connect)
    unsubscribe = observe.subscribe(lambda _, fields: said.append(fields), lambda event: event == "listener.blocked")

    async def listen() -> None:
        listening = asyncio.create_task(listen_to(pooled_url).listen(lambda _: None))
        for _ in range(3):
            await asyncio.to_thread(connected.acquire, True, 30.0)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    try:
        asyncio.run(listen())
    finally:
        unsubscribe()
    assert ["polling" in fields["error"] for fields in said] == [True]


def test_prepared_statements_can_be_enabled_for_a_pooler_that_supports_them(
    server_url: str, database_url: str, tmp_path: Path
) -> None:
    """A single server process simulates a PgBouncer that tracks its clients' prepared statements."""
    with pgbouncer(server_url, default_pool_size=1) as url:
        shared = with_database(url, str(conninfo_to_dict(database_url)["dbname"]))
        settings = Stage(database_url, tmp_path).settings
        with Client(replace(settings, database_url=shared, pooler="prepared"), max_connections=1) as client:
            # Some of them notify workers with a statement of their own.
            for n in range(20):
                client.submit("echo", {"value": n})
            with client._links.get().pool.connection() as connection:
                assert connection.execute("select count(*) > 0 from pg_prepared_statements").fetchone() == (True,)


def test_the_doctor_reports_a_pooler(stage: Stage, database_url: str) -> None:
    with OwnConnection.connect(stage.url, session=sessions.CLIENT) as connection:
        target = Target(stage.settings, stage.url, connection)
        assert "pooler" in pooler(target).detail
        assert doorbell(target).state is State.WARN
    with OwnConnection.connect(database_url, session=sessions.CLIENT) as connection:
        target = Target(stage.settings, database_url, connection)
        assert (pooler(target).state, pooler(target).detail) == (
            State.OK,
            "none: each connection has its own session",
        )
