"""Errors that name the cause and the solution, and the first log lines of a worker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast import AsyncClient, Client
from holdfast.domain.errors import BadInput, ClientClosed, DatabaseUnreachable, UnknownTask
from holdfast.http_client import AsyncHttpClient, HttpClient
from holdfast.jobs.facades import Jobs
from holdfast.results.files import DamagedResult
from holdfast.runtime.settings import Settings
from tests.integration.cli_support import Cli
from tests.integration.worker_support import Stage


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, doorbell="poll")


def test_a_missing_result_names_the_location_and_the_setting(database_url: str, tmp_path: Path) -> None:
    stage = Stage(database_url, tmp_path / "worker", inline_result_bytes=1)
    elsewhere = tmp_path / "reader"
    try:
        run = stage.submit("echo", value="a result of more than a byte")
        with stage.worker("inline"):
            stage.ended(run)
        assert run.result() == "a result of more than a byte"
        reading = Client(Settings(database_url=database_url, artifacts=str(elsewhere)))
        with reading as client, pytest.raises(DamagedResult) as missing:
            client.result(run)
    finally:
        stage.close()
    assert f"result {run.id}/1.json was not found in {elsewhere}:" in str(missing.value)
    assert "Set HOLDFAST_ARTIFACTS here to the same directory" in str(missing.value)


def test_a_closed_client_says_so(database_url: str, settings: Settings) -> None:
    with Client(settings) as client:
        run = client.submit("mock", {"seconds": 0})
    with psycopg.connect(database_url) as connection:
        calls: list[Callable[[], object]] = [
            lambda: client.submit("mock", {"seconds": 0}),
            run.refresh,
            lambda: run.wait(1),
            lambda: client.on(connection).submit("mock", {"seconds": 0}),
            lambda: Jobs(client).create_job("a job"),
        ]
        for call in calls:
            with pytest.raises(ClientClosed, match="this Client is closed"):
                call()
    client.close()


async def test_a_closed_asynchronous_client_says_so(database_url: str, settings: Settings) -> None:
    async with AsyncClient(settings) as client:
        run = await client.submit("mock", {"seconds": 0})
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: client.submit("mock", {"seconds": 0}),
            run.refresh,
            lambda: client.on(connection).submit("mock", {"seconds": 0}),
        ]
        for call in calls:
            with pytest.raises(ClientClosed, match="this AsyncClient is closed"):
                await call()
    await client.close()


async def test_closed_http_client_says_so() -> None:
    client = HttpClient("http://127.0.0.1:1", settings=Settings())
    client.close()
    with pytest.raises(ClientClosed, match="this HttpClient is closed"):
        client.submit("mock")
    with pytest.raises(ClientClosed):
        list(client.follow_logs("00000000-0000-7000-8000-000000000000"))
    awaited = AsyncHttpClient("http://127.0.0.1:1", settings=Settings())
    await awaited.close()
    with pytest.raises(ClientClosed, match="this AsyncHttpClient is closed"):
        await awaited.submit("mock")


@pytest.mark.parametrize("pooled", [False, True])
def test_a_missing_database_is_named_with_the_command_to_create_it(
    request: pytest.FixtureRequest, database_url: str, pooled: bool
) -> None:
    url = request.getfixturevalue("pooled_url") if pooled else database_url
    known: dict[str, Any] = conninfo_to_dict(url)
    missing = make_conninfo(**{**known, "dbname": "shop orders"})
    with pytest.raises(DatabaseUnreachable) as caught:
        Client(Settings(database_url=missing))
    said = str(caught.value)
    assert "the database 'shop orders' does not exist on the server" in said
    assert 'create database "shop orders"' in said
    assert "holdfast db upgrade" in said
    assert "HOLDFAST_DATABASE_URL" in said


def test_a_task_without_a_name_in_a_script_is_refused_with_a_suggested_name(tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text("from holdfast import task\n\n@task\ndef greet(name: str) -> str:\n    return name\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    said = done.stderr.splitlines()[-1]
    assert said.startswith(
        "holdfast.domain.errors.ConfigurationError: task greet is defined in the script that was started"
    )
    assert said.endswith('@task("greet")')
    imported = subprocess.run(
        [sys.executable, "-c", "import shop; print(shop.greet.name)"], cwd=tmp_path, text=True, capture_output=True
    )
    assert imported.stdout == "shop.greet\n"


def test_an_unknown_entrypoint_of_a_job_names_the_known_ones(settings: Settings) -> None:
    with Client(settings) as client:
        with pytest.raises(BadInput) as job:
            Jobs(client).create_job("a job", [{"entrypoint": "mock"}, {"entrypoint": "mokc"}])
        with pytest.raises(UnknownTask) as run:
            client.submit("mokc")
    for refused, pointer in ((job, "/tasks/1/entrypoint"), (run, "/model")):
        (problem,) = [problem for problem in refused.value.problems if problem.pointer == pointer]
        assert "no task is registered under the name 'mokc'; did you mean 'mock'? registered: " in problem.detail
        assert "baseline_forecast_v1" in problem.detail
        assert problem.detail in str(refused.value)


def test_an_unknown_task_lists_at_most_some_of_the_known_ones() -> None:
    error = UnknownTask("none", [f"task {number:03}" for number in range(500)])
    assert str(error).count("task 0") == 20
    assert "and 480 more" in str(error)


def test_a_worker_logs_its_settings_at_once_even_if_the_database_does_not_answer(tmp_path: Path) -> None:
    url = "postgresql://ada:secret@127.0.0.1:1/shop"
    cli = Cli(tmp_path, database_url=url)
    answer = cli("worker", "--queues", "a,b", "--slots", "3")
    assert answer.code == 69
    first, *_ = answer.err.splitlines()
    said = json.loads(first)
    assert said["event"] == "worker.starting"
    assert said["database"] == "postgresql://ada:********@127.0.0.1:1/shop"
    assert (said["queues"], said["slots"], said["executor"]) == ("a, b", 3, "process")
    assert said["tasks"] == "holdfast.tasks"
