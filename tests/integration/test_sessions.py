"""Sessions rely only on settings that they set themselves, not on the role, the database or an idle connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.client import AsyncClient, Client
from holdfast.domain.errors import DatabaseUnreachable
from holdfast.drivers import psycopg as driver
from holdfast.drivers import psycopg_async as async_driver
from holdfast.drivers import sessions
from holdfast.drivers.pools import OwnPool
from holdfast.drivers.psycopg import OwnConnection, bounded
from holdfast.drivers.psycopg_async import AsyncOwnConnection
from holdfast.runtime.settings import Settings
from holdfast.schema import drift as schema_check
from holdfast.sql.statement import Op, Statement, rows
from holdfast.worker.database import Database, ReadOnly, Unavailable
from tests.integration.wire import Wire
from tests.integration.worker_support import Stage, eventually

# Settings of a role, database or server that our statements are not written for.
HOSTILE = {
    "default_transaction_isolation": "repeatable read",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "search_path": "nowhere",
    "timezone": "Pacific/Chatham",
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "extra_float_digits": "-10",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
    "session_replication_role": "replica",
    "jit": "on",
    "jit_above_cost": "0",
    "lock_timeout": "0",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "10min",
}


@pytest.fixture
def hostile_url(server_connection: psycopg.Connection, database_url: str) -> str:
    name = conninfo_to_dict(database_url)["dbname"]
    for setting, value in HOSTILE.items():
        server_connection.execute(f"alter database {name} set {setting} = '{value}'")
    return database_url


def values(connection: psycopg.Connection, names: list[str]) -> dict[str, str]:
    return {name: connection.execute("select current_setting(%s)", [name]).fetchone()[0] for name in names}  # type: ignore[index]


@pytest.mark.parametrize(
    "session",
    [
        sessions.CLIENT,
        sessions.API,
        sessions.SWEEP,
        sessions.LISTENER,
        sessions.worker("worker", moving=True, limit=15.0),
        sessions.worker("renewal", moving=False, limit=5.0),
    ],
    ids=lambda session: session.use,
)
def test_a_session_overrides_the_settings_of_the_database(hostile_url: str, session: sessions.Session) -> None:
    with (
        OwnConnection.connect(hostile_url, session=session) as connection,
        psycopg.connect(hostile_url, autocommit=True) as plain,
    ):
        # Both values are formatted by the server, which writes 2000ms as 2s.
        for name, value in session.settings(connection.info.server_version).items():
            plain.execute("select set_config(%s, %s, false)", [name, value])
        names = [*session.settings(connection.info.server_version), "transaction_isolation", "transaction_read_only"]
        assert set(HOSTILE) - {*names, "jit_above_cost", "session_replication_role"} == set()
        assert values(connection, names) == values(plain, names)
        assert values(connection, ["session_replication_role"]) == {"session_replication_role": "origin"}
        assert connection.info.encoding == "utf-8"


def test_every_worker_session_that_restricts_plans_has_jit_off() -> None:
    settings = sessions.worker("worker", moving=True, limit=15.0).settings(150000)
    assert (settings["enable_seqscan"], settings["jit"]) == ("off", "off")


def test_functions_that_restrict_plans_have_jit_off(server_connection: psycopg.Connection, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "select proname, proconfig from pg_proc where pronamespace = 'holdfast'::regnamespace"
            " and exists (select from unnest(proconfig) as one where one like 'enable_%')"
        ).fetchall()
    assert found
    assert [name for name, config in found if "jit=off" not in config] == []


def test_runs_are_submitted_performed_and_read_on_a_hostile_database(hostile_url: str, tmp_path: Path) -> None:
    stage = Stage(hostile_url, tmp_path)
    try:
        runs = [stage.submit("echo", value={"n": n, "x": 0.1 + 0.2}) for n in range(20)]
        with stage.worker("inline"):
            ended = [stage.ended(run) for run in runs]
            assert stage.ended(stage.submit("fatal")).status == "FAILED"
        assert [run.result() for run in ended] == [{"n": n, "x": 0.1 + 0.2} for n in range(20)]
        assert all(run.created_at.utcoffset().total_seconds() == 0 for run in ended)  # type: ignore[union-attr]
        assert len(stage.client.list(limit=50)) == 21
        assert schema_check.check(hostile_url) == []
    finally:
        stage.close()


def test_a_tasks_own_transaction_keeps_the_settings_of_its_role(
    hostile_url: str, server_connection: psycopg.Connection
) -> None:
    """The task's statements may rely on the role's search path. Only the isolation level is ours."""
    from holdfast.worker.transactions import open_transaction

    transaction = open_transaction(hostile_url, "w")
    try:
        found = values(
            transaction.connection, ["search_path", "timezone", "transaction_isolation", "transaction_read_only"]
        )
        assert found == {
            "search_path": "nowhere",
            "timezone": "Pacific/Chatham",
            "transaction_isolation": "read committed",
            "transaction_read_only": "off",
        }
    finally:
        transaction.rollback()


@pytest.fixture
def client(database_url: str, tmp_path: Path) -> Iterator[Client]:
    with Client(
        Settings(database_url=database_url, artifacts=str(tmp_path), tasks=("tests.integration.worker_tasks",))
    ) as made:
        yield made


def fill(client: Client, connections: int) -> None:
    """Make the pool open this many connections, and return them."""
    taken = [client._links.get().pool.getconn() for _ in range(connections)]
    for connection in taken:
        client._links.get().pool.putconn(connection)


def terminate_all(database_url: str) -> None:
    """Terminate the connections of a pool, as a restart of the server does."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        find = """
            from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
              and backend_type = 'client backend'"""
        connection.execute(f"select pg_terminate_backend(pid) {find}")
        eventually(lambda: connection.execute(f"select count(*) {find}").fetchone() == (0,))


def test_no_call_fails_after_a_restart_of_the_server(client: Client, database_url: str) -> None:
    run = client.submit("echo", {"value": 1})
    client.cancel(run)
    for call in (
        lambda: client.retry(run),  # must not be sent twice
        lambda: client.submit("echo", {"value": 2}),
    ):
        fill(client, 8)
        terminate_all(database_url)
        call()


async def test_no_asynchronous_call_fails_after_a_restart_of_the_server(client: Client, database_url: str) -> None:
    async with AsyncClient(client.settings) as asynchronous:
        await asynchronous.queues()
        taken = [await asynchronous._pool.getconn() for _ in range(8)]
        for connection in taken:
            await asynchronous._pool.putconn(connection)
        await asyncio.to_thread(terminate_all, database_url)
        run = await asynchronous.submit("echo", {"value": 2})
        await asynchronous.cancel(run)
        await asyncio.to_thread(terminate_all, database_url)
        await asynchronous.retry(run)


def test_a_client_gives_up_on_a_server_that_does_not_respond(
    client: Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(replace(client.settings, database_url=wire.url)) as caller:
        caller.submit("echo", {"value": 1})
        monkeypatch.setattr(driver, "bounded", lambda waits, _: bounded(waits, 0.3))
        wire.swallow()
        with pytest.raises(DatabaseUnreachable, match="did not respond"):
            caller.submit("echo", {"value": 2})


async def test_an_asynchronous_client_gives_up_on_a_server_that_does_not_respond(
    client: Client, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncClient(replace(client.settings, database_url=wire.url)) as caller:
        await caller.submit("echo", {"value": 1})
        monkeypatch.setattr(async_driver, "bounded", lambda waits, _: bounded(waits, 0.3))
        wire.swallow()
        with pytest.raises(DatabaseUnreachable, match="did not respond"):
            await caller.submit("echo", {"value": 2})


def test_a_caller_that_waits_too_long_for_a_lock_gets_database_unreachable(
    client: Client, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = client.submit("echo", {"value": 1})
    monkeypatch.setattr(sessions, "CLIENT", replace(sessions.CLIENT, lock_timeout=0.05))
    with Client(client.settings) as caller, psycopg.connect(database_url) as other:
        other.execute("lock table holdfast.runs in access exclusive mode")
        with pytest.raises(DatabaseUnreachable, match="conflict with another transaction"):
            caller.cancel(run)


def sleeping() -> Op[object]:
    return (yield from Statement("select pg_sleep(600)", {}, lambda rows: None))


def backends(connection: psycopg.Connection) -> int:
    found = connection.execute(
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and query = 'select pg_sleep(600)' and pid <> pg_backend_pid()"
    )
    return found.fetchone()[0]  # type: ignore[index]


async def test_timed_out_statement_is_cancelled_on_the_server(database_url: str) -> None:
    database = Database(database_url, "worker", time_limit=500.0)
    with psycopg.connect(database_url, autocommit=True) as connection:
        work = asyncio.create_task(database.transact(sleeping))
        await asyncio.to_thread(eventually, lambda: backends(connection) == 1)
        database.cut()
        with pytest.raises(Unavailable):
            await work
        await asyncio.to_thread(eventually, lambda: backends(connection) == 0)
    await database.close()


async def test_a_cancelled_call_ends_its_statement_at_the_server(database_url: str) -> None:
    database = Database(database_url, "worker", time_limit=500.0)
    with psycopg.connect(database_url, autocommit=True) as connection:
        work = asyncio.create_task(database.transact(sleeping))
        await asyncio.to_thread(eventually, lambda: backends(connection) == 1)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await asyncio.to_thread(eventually, lambda: backends(connection) == 0)
    await database.close()


async def test_a_server_that_does_not_respond_to_a_cancel_request_is_given_up(wire: Wire) -> None:
    database = Database(wire.url, "worker", time_limit=500.0)
    await database.connect()
    wire.swallow()
    work = asyncio.create_task(database.transact(sleeping))
    await asyncio.sleep(0)
    database.cut()
    with pytest.raises(Unavailable):
        await work
    await database.close()


async def test_an_asynchronous_session_sets_the_same(hostile_url: str) -> None:
    connection = await AsyncOwnConnection.connect(hostile_url, session=sessions.CLIENT)
    cursor = await connection.execute("select current_setting('transaction_isolation'), current_setting('jit')")
    assert await cursor.fetchone() == ("read committed", "off")
    assert not connection.pooled
    await connection.close()


def test_pool_gives_out_the_connection_that_was_returned_last(database_url: str) -> None:
    own = {"session": sessions.CLIENT}
    with OwnPool(database_url, min_size=0, max_size=2, connection_class=OwnConnection, kwargs=own, open=True) as pool:
        with pool.connection() as last, pool.connection() as other:
            assert last is not other
        for _ in range(3):
            with pool.connection() as given:
                assert given is last


async def test_worker_leaves_a_server_that_accepts_no_writes(database_url: str) -> None:
    """After a failover, its old connection may lead to the standby."""
    database = Database(database_url, "test")
    refuse = Statement("do $$ begin raise read_only_sql_transaction; end $$", {}, rows)
    with pytest.raises(ReadOnly):
        await database.transact(lambda: iter(refuse))
    assert not database.connected
    await database.close()
