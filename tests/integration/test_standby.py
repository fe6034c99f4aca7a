"""A standby responds but accepts no writes: nothing is ready on it, and every error says so."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Client
from holdfast.domain.errors import DatabaseReadOnly
from holdfast.http import create_app
from holdfast.http.service import EXTENSION
from holdfast.runtime.settings import Settings
from holdfast.schema import migrate
from holdfast.worker import port
from tests.chaos.servers import DATABASE, Owner, Postgres
from tests.integration.cli_support import Cli

NO_WRITES = "accepts no writes: it is a standby or read-only"


@pytest.fixture(scope="module")
def standby() -> Iterator[Postgres]:
    owner = Owner()
    with tempfile.TemporaryDirectory(prefix="holdfast-standby-", dir="/tmp") as name:
        directory = Path(name)
        owner.give(directory)
        server = Postgres(directory, None, owner)
        try:
            server.start()
            with server.connect("postgres") as connection:
                connection.execute(f"create database {DATABASE}")  # type: ignore[arg-type]
            migrate.upgrade(server.url)
            server.demote()
            yield server
        finally:
            server.end(signal.SIGQUIT)


def test_the_api_on_a_standby_reads_but_is_not_ready(standby: Postgres, tmp_path: Path) -> None:
    app = create_app(Settings(database_url=standby.url, artifacts=str(tmp_path)))
    api = app.test_client()
    try:
        for path in ("/readyz", "/healthz"):
            answer = api.get(path)
            assert (answer.status_code, answer.json["checks"]) == (503, {"postgres": "down"})
            assert NO_WRITES in answer.json["reasons"]["postgres"]
        refused = api.post("/runs", json={"model": "mock", "parameters": {"seconds": 0}})
        assert (refused.status_code, refused.json["type"]) == (503, "/problems/database-read-only")
        assert NO_WRITES in refused.json["detail"]
        assert (api.get("/runs").status_code, api.get("/livez").status_code) == (200, 200)
    finally:
        app.extensions[EXTENSION].close()


def test_a_client_of_a_standby_reads_and_is_refused_writes_with_the_reason(standby: Postgres, tmp_path: Path) -> None:
    with Client(Settings(database_url=standby.url, artifacts=str(tmp_path))) as client:
        assert list(client.list()) == []
        with pytest.raises(DatabaseReadOnly, match=NO_WRITES):
            client.submit("mock", {"seconds": 0})


def test_worker_on_a_standby_says_that_the_database_accepts_no_writes(standby: Postgres, tmp_path: Path) -> None:
    said = Cli(tmp_path, database_url=standby.url)("worker", "--until-empty")
    assert said.code == 69
    assert NO_WRITES in said.err
    assert "does not respond" not in said.err
    database = port.Database(standby.url, "auto")
    try:
        assert NO_WRITES in (database.trouble() or "")
    finally:
        database.close()
