"""The API with its own database: as an application that is called directly, or as the shipped server on a port."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient

from holdfast.domain.ids import new_id
from holdfast.domain.tokens import SCOPES, mint
from holdfast.drivers.psycopg import transact
from holdfast.http import create_app, database, principals
from holdfast.http.service import EXTENSION
from holdfast.ops.tokens import create_token
from holdfast.runtime.settings import Settings
from tests.databases import Databases
from tests.http.manual_worker import ManualWorker

ROOT = Path(__file__).parents[2]
Submit = Callable[..., str]
Mint = Callable[..., tuple[str, str]]


@pytest.fixture
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    reusable: ReusableServer | None = request.getfixturevalue("reusable_server") if reuses_server(request) else None
    return reusable.settings if reusable else settings_for(request.getfixturevalue("database_url"), tmp_path)


def settings_for(database_url: str, directory: Path) -> Settings:
    return Settings(
        database_url=database_url,
        artifacts=str(directory / "artifacts"),
        tasks=("tests.http.api_tasks",),
        grace_seconds=2.0,
    )


@pytest.fixture
def make_app() -> Iterator[Callable[[Settings], Flask]]:
    made: list[Flask] = []

    def make(settings: Settings) -> Flask:
        made.append(create_app(settings))
        return made[-1]

    yield make
    for app in made:
        app.extensions[EXTENSION].close()


@pytest.fixture
def brief_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests wait for a connection for one second instead of ten."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 1.0)


@pytest.fixture
def app(settings: Settings, make_app: Callable[[Settings], Flask]) -> Flask:
    return make_app(settings)


@pytest.fixture
def api(app: Flask) -> FlaskClient:
    # Tests send cookies explicitly.
    return app.test_client(use_cookies=False)


@pytest.fixture
def manual_worker(database_url: str) -> Iterator[ManualWorker]:
    made = ManualWorker(database_url)
    yield made
    made.close()


@pytest.fixture
def submit(api: FlaskClient) -> Submit:
    """Submits a run and returns its id."""

    def make(model: str = "mirror", parameters: Any = None, **options: Any) -> str:
        body = {"model": model, "parameters": parameters or {}, "dedupe": "off", **options}
        answer = api.post("/runs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json["run_id"])

    return make


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as made:
        yield made


@pytest.fixture
def make_token(connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> Mint:
    """Creates a token and returns its text and its id; from then on the API requires one."""
    monkeypatch.setattr(principals, "OPEN_SECONDS", 0.0)

    def make(*scopes: str, name: str = "test", days: float | None = None) -> tuple[str, str]:
        text, stored = mint(secrets.token_bytes(32), new_id(), name, scopes or SCOPES, by="tester", days=days)
        transact(connection, lambda: create_token(stored))
        return text, stored.id

    return make


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Server:
    """The shipped server as a process."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        outside = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.http.serving", *arguments],
            cwd=ROOT,
            env={**outside, "PYTHONPATH": "src", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def client(self, **options: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, **{"timeout": 20.0, **options})

    def stop(self) -> tuple[int, str]:
        """Stop it, and return its exit code and its output."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            _, output = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, output = self.process.communicate()
        return self.process.returncode, output


def environment_of(settings: Settings) -> dict[str, str]:
    return {
        "HOLDFAST_DATABASE_URL": settings.database_url or "",
        "HOLDFAST_ARTIFACTS": settings.artifacts,
        "HOLDFAST_TASKS": ",".join(settings.tasks),
        "HOLDFAST_GRACE_SECONDS": "2",
        "HOLDFAST_PORT": "0",
    }


@pytest.fixture
def start_server(settings: Settings) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(*arguments: str, **environment: str) -> Server:
        started.append(Server(environment_of(settings) | environment, *arguments))
        return started[-1]

    yield start
    for server in started:
        server.stop()


class ReusableServer:
    """A server for all tests of a module, one after the other: starting one takes a second of CPU time.

    Its database is emptied after each test. If that is not allowed, the next test gets a new database and a new server.
    """

    def __init__(self, databases: Databases, directory: Path) -> None:
        self._databases = databases
        self._directory = directory
        self._lent = ExitStack()
        self._settings: Settings | None = None
        self._server: Server | None = None

    @property
    def settings(self) -> Settings:
        if self._settings is None:
            self._settings = settings_for(self._lent.enter_context(self._databases.lend()), self._directory)
        return self._settings

    @property
    def server(self) -> Server:
        if self._server is None:
            self._server = Server(environment_of(self.settings))
            self._lent.callback(self._server.stop)
        return self._server

    def clear(self) -> None:
        if self._settings is not None and not self._databases.clear(self._settings.database_url or ""):
            self.close()

    def close(self) -> None:
        self._lent.close()
        self._settings = self._server = None


def reuses_server(request: pytest.FixtureRequest) -> bool:
    of = request.node
    return bool(of.get_closest_marker("one_server")) and not of.get_closest_marker("fresh_database")


@pytest.fixture(scope="module")
def module_server(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReusableServer]:
    reusable = ReusableServer(databases, tmp_path_factory.mktemp("server"))
    yield reusable
    reusable.close()


@pytest.fixture
def reusable_server(module_server: ReusableServer) -> Iterator[ReusableServer]:
    yield module_server
    module_server.clear()


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    if reuses_server(request):
        reusable: ReusableServer = request.getfixturevalue("reusable_server")
        return reusable.settings.database_url or ""
    url: str = request.getfixturevalue("database_url")
    return url


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    if reuses_server(request):
        reusable: ReusableServer = request.getfixturevalue("reusable_server")
        return reusable.server
    started: Server = request.getfixturevalue("start_server")()
    return started
