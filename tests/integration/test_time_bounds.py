"""Times that cannot be represented everywhere are rejected; runs that already have such a time can still be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from holdfast import AsyncClient, Client, Retry, task
from holdfast.domain.errors import BadInput, ConfigurationError
from holdfast.drivers import psycopg as driver
from holdfast.http import create_app
from holdfast.http.service import EXTENSION
from holdfast.jobs.facades import Jobs
from holdfast.ops import promote
from holdfast.runtime.settings import Settings
from holdfast.sql import figures
from holdfast.verbs.options import Submission
from holdfast.verbs.requests import submit_request

FAR = [
    datetime.max.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    datetime.min.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime(1899, 12, 31, tzinfo=UTC),
    datetime(2030, 1, 1),  # noqa: DTZ001 - without a zone it is refused as well
    timedelta.max,
    timedelta.min,
    timedelta(days=3_700_000),
    timedelta(days=-800_000),
    "2030-01-01T00:00:00Z",
    3600,
]
NEAR = [
    timedelta(days=36_525),
    timedelta(days=-36_525),
    datetime(9998, 12, 30, tzinfo=UTC),
    datetime(1900, 1, 1, tzinfo=UTC),
]


@task("bounds.noop")
def noop(n: int = 0) -> int:
    return n


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, doorbell="poll")


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with Client(settings) as client:
        yield client


@pytest.mark.parametrize("far", FAR, ids=repr)
def test_a_start_out_of_range_is_refused_by_every_python_front_end(
    database_url: str, client: Client, settings: Settings, far: Any
) -> None:
    async def asynchronously() -> None:
        async with AsyncClient(settings) as other:
            await other.submit(noop, run_after=far)

    calls: list[Callable[[], object]] = [
        lambda: client.submit(noop, run_after=far),
        lambda: client.submit_many(noop, [{}, {}], run_after=far),
        lambda: client.submit_many([Submission(noop), Submission(noop, {}, {"run_after": far})]),
        lambda: Jobs(client).create_job("a", tasks=[{"entrypoint": noop, "run_after": far}]),
        lambda: submit_request(noop, {}, run_after=far),
        lambda: asyncio.run(asynchronously()),
    ]
    for call in calls:
        with pytest.raises(BadInput) as refused:
            call()
        assert [problem.pointer.removeprefix("/tasks/0") for problem in refused.value.problems] == ["/run_after"]
    assert client.list() == []


@pytest.mark.parametrize("near", NEAR, ids=repr)
def test_a_start_within_the_bounds_is_kept_and_read(client: Client, near: Any) -> None:
    run = client.submit(noop, run_after=near)
    (listed,) = client.list()
    assert listed.as_dict()["run_after"] == client.get(run).as_dict()["run_after"] == run.as_dict()["run_after"]
    assert client.why(run)


def test_a_start_out_of_range_is_refused_over_http(settings: Settings) -> None:
    app = create_app(settings)
    try:
        api = app.test_client()
        for far in ("9999-01-01T00:00:00Z", "1899-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"):
            answer = api.post("/runs", json={"model": "mock", "run_after": far}, headers={"Host": "127.0.0.1"})
            assert answer.status_code == 422
            assert [problem["pointer"] for problem in answer.json["errors"]] == ["/run_after"]
        assert api.get("/runs", headers={"Host": "127.0.0.1"}).json["items"] == []
    finally:
        app.extensions[EXTENSION].close()


def test_durations_that_are_too_long_are_refused(client: Client) -> None:
    for dedupe in (timedelta.max, timedelta(0), 1e9, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="/dedupe"):
            client.submit(noop, dedupe=dedupe)
    for timeout in (timedelta.max, timedelta(0)):
        with pytest.raises(ConfigurationError, match="timeout"):
            task("bounds.long", timeout=timeout)(noop.fn)
    with pytest.raises(ConfigurationError, match="dedupe"):
        task("bounds.window", dedupe=timedelta.max)(noop.fn)
    for retry in ({"delays": [timedelta.max]}, {"base_delay": 1e300}, {"max_delay": float("inf")}):
        with pytest.raises(ConfigurationError):
            Retry(**retry)  # type: ignore[arg-type]
    for timeout in (timedelta.max, 1e300, float("nan")):
        with pytest.raises(BadInput, match="/timeout"):
            Jobs(client).create_job("a", timeout=timeout)
    for setting in ("key_seconds", "dedupe_seconds", "task_timeout_seconds", "job_timeout_seconds", "lease_seconds"):
        with pytest.raises(ConfigurationError, match=setting):
            Settings(**{setting: 1e300})
    for setting in ("retention_days", "delivery_days", "max_attempts"):
        with pytest.raises(ConfigurationError, match=setting):
            Settings(**{setting: 10**12})
    assert client.list() == []


STORED = ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"]


@pytest.fixture(params=STORED)
def strange(request: pytest.FixtureRequest, database_url: str, client: Client) -> str:
    """The id of a run with a time that Python cannot represent. Another run has an ordinary time."""
    ready, waits = client.submit(noop, {"n": 1}), client.submit(noop, {"n": 2}, run_after=timedelta(hours=1))
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute("update holdfast.runs set run_after = %s", [request.param])
        connection.execute("update holdfast.ready set rank_at = %s where run_id = %s", [request.param, ready.id])
        connection.execute("update holdfast.waiting set due_at = %s where run_id = %s", [request.param, waits.id])
        connection.execute("update holdfast.runs set policy = '{\"max_attempts\": 1e99}' where id = %s", [ready.id])
    client.submit(noop, {"n": 3})
    return ready.id if request.param.startswith("-") else waits.id


def test_a_run_with_a_strange_time_is_listed_with_the_others(client: Client, strange: str) -> None:
    assert len(client.list()) == 3
    assert len(client.list(status="PENDING", queue="default")) == 3


def test_a_run_with_a_strange_time_can_be_read(client: Client, strange: str) -> None:
    run = client.get(strange)
    assert 1 < run.run_after.year < 9999
    assert run.as_dict()["run_after"]


def test_a_run_with_a_strange_time_can_be_explained(client: Client, strange: str) -> None:
    assert client.why(strange)


def test_a_run_with_a_strange_time_has_events_and_attempts(client: Client, strange: str) -> None:
    assert [event.type for event in client.events(strange)] == ["SUBMITTED"]
    assert client.attempts(strange) == []


def test_queues_with_a_strange_time_are_listed(client: Client, strange: str, database_url: str) -> None:
    assert [queue.name for queue in client.queues()] == ["default"]
    with psycopg.connect(database_url, autocommit=True) as connection:
        assert driver.run(connection, iter(figures.queues()))
        assert driver.run(connection, iter(figures.stuck()))


def test_strange_time_does_not_prevent_other_runs_from_being_promoted(
    client: Client, strange: str, database_url: str
) -> None:
    due = client.submit(noop, {"n": 4}, run_after=timedelta(hours=1))
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update holdfast.waiting set due_at = now() where run_id = %s", [due.id])
        driver.transact(connection, lambda: promote(100))
        assert connection.execute("select from holdfast.ready where run_id = %s", [due.id]).rowcount == 1


def test_page_of_runs_shows_a_strange_time(settings: Settings, strange: str) -> None:
    app = create_app(settings)
    try:
        for path in ("/runs", f"/runs/{strange}", f"/runs/{strange}/why", "/queues", "/metrics"):
            assert app.test_client().get(path, headers={"Host": "127.0.0.1"}).status_code == 200, path
    finally:
        app.extensions[EXTENSION].close()
