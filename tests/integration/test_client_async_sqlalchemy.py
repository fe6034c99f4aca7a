"""A client in the transaction of an asynchronous SQLAlchemy connection or session, over psycopg and over asyncpg."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session

from holdfast import AsyncClient, Client, task
from holdfast.domain.errors import BadInput, ConfigurationError, KeyReused, RunNotFinished
from holdfast.drivers import asyncpg
from holdfast.jobs import View
from holdfast.jobs.facades import AsyncJobs
from holdfast.runtime.settings import Settings
from holdfast.verbs.facades import AsyncCalls, AsyncDatabaseCalls
from holdfast.verbs.options import Submission
from tests.conformance.drivers import async_engine

DRIVERS = ("psycopg", "asyncpg")


@task("alchemy.part")
def part(view: View, factor: int = 1) -> int:
    return len(view) * factor


@task("alchemy.join")
def join(results: Any) -> int:
    return sum(results)


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, doorbell="poll")


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(settings) as client:
        yield client


@pytest.fixture(params=DRIVERS)
async def engine(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[AsyncEngine]:
    engine = async_engine(database_url, request.param)
    yield engine
    await engine.dispose()


@asynccontextmanager
async def own_session(engine: AsyncEngine) -> AsyncIterator[AsyncSession]:
    """A session of the application's own class, such as SQLModel's."""

    class OwnSession(AsyncSession):
        pass

    OwnSession.__module__ = "application.sessions"
    async with OwnSession(engine) as session:
        yield session


@asynccontextmanager
async def scoped(engine: AsyncEngine) -> AsyncIterator[async_scoped_session[AsyncSession]]:
    sessions = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
    yield sessions
    await sessions.remove()


KINDS: dict[str, Callable[[AsyncEngine], AbstractAsyncContextManager[Any]]] = {
    "connection": lambda engine: engine.connect(),
    "session": AsyncSession,
    "session of a subclass": own_session,
    "scoped session": scoped,
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_is_part_of_the_callers_transaction(client: AsyncClient, engine: AsyncEngine, kind: str) -> None:
    async with KINDS[kind](engine) as connection:
        run = await client.on(connection).submit("mock", {"seconds": 0})
        assert run.created
        assert await client.list() == []
        await connection.rollback()
        assert await client.list() == []
        run = await client.on(connection).submit("mock", {"seconds": 0})
        await connection.commit()
    assert [found.id for found in await client.list()] == [run.id]


@pytest.mark.parametrize("kind", ["connection", "session"])
async def test_rolling_back_a_savepoint_rolls_back_its_run(client: AsyncClient, engine: AsyncEngine, kind: str) -> None:
    async with KINDS[kind](engine) as connection:
        kept = await client.on(connection).submit("mock", {"seconds": 0}, key="kept")
        savepoint = await connection.begin_nested()
        lost = await client.on(connection).submit("mock", {"seconds": 0}, key="lost")
        await savepoint.rollback()
        async with connection.begin_nested():
            released = await client.on(connection).submit("mock", {"seconds": 0}, key="lost")
        await connection.commit()
    assert released.created
    assert {found.id for found in await client.list()} == {kept.id, released.id}
    assert lost.id != released.id


async def test_a_session_is_flushed_before_the_run_is_submitted(client: AsyncClient, engine: AsyncEngine) -> None:
    class Base(sqlalchemy.orm.DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "alchemy_orders"
        id: sqlalchemy.orm.Mapped[int] = sqlalchemy.orm.mapped_column(primary_key=True)

    async with AsyncSession(engine) as session:
        await session.run_sync(lambda blocking: Base.metadata.create_all(blocking.connection()))
        order = Order()
        session.add(order)
        assert order.id is None
        await client.on(session).submit("mock", {"seconds": 0})
        assert order.id == 1


@pytest.mark.parametrize("driver", DRIVERS)
async def test_many_runs_are_created_all_or_none_with_autocommit(
    database_url: str, client: AsyncClient, driver: str
) -> None:
    taken = await client.submit("mock", {"seconds": 0}, key="taken")
    many = [Submission("mock", {"seconds": n}, {"key": key}) for n, key in enumerate(("new", "taken"), 1)]
    engine = async_engine(database_url, driver, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        with pytest.raises(KeyReused):
            await client.on(connection).submit_many(many)
        assert [run.id for run in await client.list()] == [taken.id]
        (made,) = await client.on(connection).submit_many(many[:1])
        assert {run.id for run in await client.list()} == {taken.id, made.id}
    await engine.dispose()


async def test_every_allowed_call_works_over_asyncpg(database_url: str, client: AsyncClient) -> None:
    engine = async_engine(database_url, "asyncpg")
    done = set()

    async with AsyncSession(engine) as session, session.begin():
        on, jobs = client.on(session), AsyncJobs(client.on(session))

        async def call(name: str, /, *arguments: Any, **options: Any) -> Any:
            done.add(name)
            owner = on if hasattr(on, name) else jobs
            return await getattr(owner, name)(*arguments, **options)

        # Every kind of option, so that every form of the statements and every type of parameter occurs.
        first = await call("submit", "mock", {"seconds": 0, "payload": 'é"\\{'}, tags=["a b", 'c"d'], priority=-7)
        later = datetime.now(UTC) + timedelta(days=1)
        options: dict[str, Any]
        for number, options in enumerate(
            (
                {"key": "k", "concurrency_key": "c"},
                {"key": "later", "run_after": later},
                {"dedupe": "active", "queue": "other"},
                {"dedupe": timedelta(hours=1), "run_after": timedelta(minutes=5)},
                {"depends_on": [first, {"run": first.id, "on": "success"}]},
            ),
            1,
        ):
            assert (await call("submit", "mock", {"seconds": number}, **options)).status == "PENDING"
        again = await call("submit", "mock", {"seconds": 1}, key="k")
        assert not again.created
        with pytest.raises(KeyReused) as reused:
            await call("submit", "mock", {"seconds": 2}, key="k")
        assert reused.value.fields == ("/parameters/seconds",)
        many = await call("submit_many", "mock", [{"seconds": n} for n in range(300)], tags=["many"])
        assert len(many) == 300
        found = await call("get", first)
        assert (found.tags, found.priority, found.parameters["payload"]) == (("a b", 'c"d'), -7, 'é"\\{')
        assert found.created_at.tzinfo is not None
        page = await call("list", tag="many", limit=50)
        assert len(await call("list", tag="many", limit=50, cursor=page.next_cursor)) == 50
        assert await call("list", status="PENDING", model="mock", queue="other")
        assert [event.type for event in await call("events", first)] == ["SUBMITTED"]
        assert await call("attempts", first) == []
        assert (await call("why", first))[0].detail
        assert (await call("cancel", first, reason="no longer needed")).status == "CANCELLED"
        assert (await call("retry", first)).status == "PENDING"
        assert (await call("postpone", first, later)).reason == "postponed"
        assert (await call("postpone", first, timedelta(minutes=5))).reason == "postponed"
        assert await call("logs", first) == []
        with pytest.raises(RunNotFinished):
            await call("result", first)
        await call("pause_queue", "other", reason="closed")
        assert [queue.pause_reason for queue in await call("queues") if queue.name == "other"] == ["closed"]
        await call("resume_queue", "other")
        for name in (
            "totals",
            "summary",
            "workers",
            "subscriptions",
            "deliveries",
            "list_workers",
            "health_check",
            "metrics",
        ):
            await call(name)
        job = await call(
            "create_job",
            "two",
            [
                {"entrypoint": "mock", "kwargs": {"seconds": 0}, "key": "a", "max_retries": 0, "timeout": 5},
                {"entrypoint": "mock", "kwargs": {"seconds": 0}, "key": "b", "depends_on": ["a"]},
            ],
            timeout=60,
        )
        added = await call("add_task_to_job", job.id, "mock", {"seconds": 0}, key="c", depends_on=["b"])
        assert (await call("get_task", added)).job_id == job.id
        handle = await call("map", part, range(10), 3, factor=2, options={"job_id": job.id})
        await call("collect", handle, into=join)
        await call("remove_with_job", "/tmp/holdfast-nowhere", job_id=job.id)
        assert (await call("get_job", job)).total_tasks == 8
        assert [one.id for one in await call("list_jobs", "pending", name="two")] == [job.id]
        assert (await call("cancel_job", job)).status == "CANCELLED"
        assert await call("retry_failed_tasks", job) > 0
    await engine.dispose()
    assert (await client.get(first)).status == "PENDING"

    refused = {"drain_worker", "register_worker", "worker_heartbeat", "deregister_worker", "wait", "wait_for_job"}
    refused |= {f"{verb}_subscription" for verb in ("add", "remove", "pause", "resume")} | {
        "rotate_secret",
        "redeliver",
    }
    internal = {"execute", "load_result", "blocking_client", "add_task_to_current_job"}
    offered = {
        name
        for kind in (AsyncCalls, AsyncDatabaseCalls, AsyncJobs)
        for name, value in vars(kind).items()
        if callable(value)
    }
    assert {name for name in offered if not name.startswith("_")} - refused - internal == done


async def test_failed_transaction_raises_an_error_of_sqlalchemy(
    client: AsyncClient, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncpg, "_types", {})
    async with AsyncSession(engine) as session:
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            await session.execute(sqlalchemy.text("select 1/0"))
        with pytest.raises(sqlalchemy.exc.DBAPIError, match="current transaction is aborted"):
            await client.on(session).submit("mock", {"seconds": 0})


async def test_a_run_submitted_on_the_callers_connection_notifies_workers_as_the_first_call_of_a_client(
    database_url: str,
) -> None:
    engine = async_engine(database_url, "asyncpg")
    with psycopg.connect(database_url, autocommit=True) as ear:
        ear.execute("listen holdfast")
        client = AsyncClient(Settings(database_url=database_url))
        async with client, AsyncSession(engine) as session, session.begin():
            await client.on(session).submit("mock", {"seconds": 0}, queue="borrowed")
            await session.commit()
        assert "borrowed" in [notify.payload for notify in ear.notifies(timeout=5, stop_after=1)]
    await engine.dispose()


async def test_a_connection_of_the_wrong_kind_is_refused_with_the_client_to_use(
    settings: Settings, client: AsyncClient, engine: AsyncEngine
) -> None:
    blocking = sqlalchemy.create_engine("postgresql+psycopg://")
    with Client(settings) as other:
        async with AsyncSession(engine) as session:
            with pytest.raises(ConfigurationError, match="use an AsyncClient"):
                other.on(session)
        with pytest.raises(ConfigurationError, match=r"not sqlalchemy\.engine\.base\.Engine$"):
            other.on(blocking)
    with pytest.raises(ConfigurationError, match="use a Client"):
        client.on(Session(blocking))
    with pytest.raises(ConfigurationError, match=r"not sqlalchemy\.ext\.asyncio\.engine\.AsyncEngine$"):
        client.on(engine)
    with pytest.raises(ConfigurationError, match=r"not builtins\.int$"):
        client.on(5)
    sqlite = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.pool.NullPool)
    with Session(sqlite) as elsewhere, Client(settings) as other, pytest.raises(ConfigurationError, match="pysqlite"):
        other.on(elsewhere).submit("mock", {"seconds": 0})


async def test_a_call_that_is_not_allowed_in_a_transaction_is_refused(client: AsyncClient, engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session:
        with pytest.raises(BadInput, match="your transaction"):
            await client.on(session).rotate_secret("a")
