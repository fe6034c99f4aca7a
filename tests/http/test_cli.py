"""The command line over HTTP, and the commands for the API itself."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import pytest

from holdfast.cli.running import invoke
from holdfast.runtime.settings import Settings
from tests.http.conftest import Server
from tests.http.manual_worker import ManualWorker
from tests.http.test_outage import until

pytestmark = pytest.mark.one_server


class Shell:
    """Runs commands in this process; those with `--url` have no database."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
        self.capsys = capsys
        self.monkeypatch = monkeypatch
        self.database = settings.database_url or ""
        self.url: str | None = None
        self.errors = ""

    def run(self, *words: str, code: int = 0, **environment: str) -> str:
        found, captured = self.tried(*words, **environment)
        assert found == code, (found, captured)
        return captured

    def tried(self, *words: str, **environment: str) -> tuple[int, str]:
        """The exit code and the output on stdout."""
        with self.monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
                patch.delenv(name)
            if self.url is None:
                environment = {"HOLDFAST_DATABASE_URL": self.database, **environment}
            for name, value in environment.items():
                patch.setenv(name, value)
            self.capsys.readouterr()
            code = invoke([*(["--url", self.url] if self.url else []), *words])
            captured = self.capsys.readouterr()
            self.errors = captured.err
            return code, captured.out

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))


@pytest.fixture
def local(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Shell:
    return Shell(capsys, monkeypatch, settings)


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, settings: Settings, server: Server
) -> Shell:
    made = Shell(capsys, monkeypatch, settings)
    made.url = server.url
    return made


def test_only_the_command_line_accepts_a_shortened_id(shell: Shell, server: Server) -> None:
    run_id, other = (shell.run("submit", "mirror", "-p", f"n={number}").strip() for number in (1, 2))
    assert shell.json("runs", "show", run_id[:18])["run_id"] == run_id
    assert shell.run("runs", "show", run_id[:4], code=2) == ""
    assert run_id in shell.errors
    assert other in shell.errors
    assert shell.run("runs", "show", "beef", code=6) == ""
    with server.client() as client:
        assert client.get(f"/runs/{run_id[:18]}").status_code == 404


def test_runs_commands_work_over_http(shell: Shell, manual_worker: ManualWorker) -> None:
    run_id = shell.run("submit", "mirror", "-p", "n=1", "--key", "k").strip()
    assert shell.json("runs", "show", run_id)["parameters"] == {"n": 1}
    assert shell.run("submit", "mirror", "-p", "n=2", "--key", "k", code=8) == ""
    assert shell.run("runs", "result", run_id, code=8) == ""
    claim = manual_worker.claim(run_id)
    manual_worker.log(claim, "half way")
    manual_worker.succeed(claim, {"ok": True})
    assert shell.run("runs", "wait", run_id) is not None
    assert json.loads(shell.run("runs", "result", run_id)) == {"ok": True}
    assert shell.json("runs", "logs", run_id)["items"][0]["message"] == "half way"
    assert [event["type"] for event in shell.json("runs", "events", run_id)["items"]][-1] == "SUCCEEDED"
    assert shell.json("runs", "verify", run_id)["verified"]
    assert shell.run("runs", "retry", run_id, code=8) == ""
    assert shell.run("runs", "show", "01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b", code=6) == ""
    assert [run["run_id"] for run in shell.json("runs", "list")["items"]] == [run_id]
    assert shell.run("submit", "nope", code=2) == ""


def test_runs_of_a_job_are_listed_over_http(shell: Shell, server: Server) -> None:
    shell.run("submit", "mirror")
    with server.client() as client:
        job = client.post("/jobs", json={"name": "nightly", "tasks": [{"entrypoint": "mirror"}]}).json()["job_id"]
    for given in (job, job[:18]):
        assert [run["job_id"] for run in shell.json("runs", "list", "--job", given)["items"]] == [job]


def test_runs_wait_works_over_http(shell: Shell, manual_worker: ManualWorker) -> None:
    run_id = shell.run("submit", "mirror").strip()
    timer = threading.Timer(1.0, lambda: manual_worker.run(run_id, 42))
    timer.start()
    shell.run("runs", "wait", run_id)
    timer.join()
    assert shell.run("runs", "result", run_id).strip() == "42"


def test_queues_and_workers_commands_work_over_http(shell: Shell, manual_worker: ManualWorker) -> None:
    shell.run("queues", "pause", "slow")
    assert shell.json("queues", "list")["items"][0]["name"] == "slow"
    shell.run("queues", "resume", "slow")
    assert shell.json("workers", "list")["items"][0]["id"] == manual_worker.id
    shell.run("workers", "drain", manual_worker.id)
    shell.run("workers", "drain", "01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b", code=6)


@pytest.mark.fresh_database  # a server that has seen a token requires one from then on
def test_tokens_are_created_listed_and_then_required(local: Shell, shell: Shell) -> None:
    assert local.json("tokens", "list") == {"items": []}
    made = local.json("tokens", "create", "reader", "--scopes", "runs:read", "--expires", "90d")
    assert made["token"].startswith("hf_")
    token = local.run("tokens", "create", "writer").strip()
    assert {one["name"] for one in local.json("tokens", "list")["items"]} == {"reader", "writer"}
    assert token not in local.run("tokens", "list")
    # The server may have checked a moment ago that there are no tokens.
    until(lambda: shell.tried("runs", "list")[0] == 7)
    shell.run("runs", "list", HOLDFAST_TOKEN=made["token"])
    shell.run("submit", "mirror", code=7, HOLDFAST_TOKEN=made["token"])
    shell.run("--token", token, "submit", "mirror")
    local.run("tokens", "revoke", made["id"])
    shell.run("runs", "list", code=7, HOLDFAST_TOKEN=made["token"])
    local.run("tokens", "revoke", "x", code=6)
    local.run("tokens", "create", "bad", "--scopes", "root", code=2)


@pytest.mark.parametrize(
    "words",
    [
        ("subscriptions", "list"),
        ("subscriptions", "deliveries"),
        ("subscriptions", "remove", "x"),
        ("tokens", "create", "x"),
        ("tokens", "list"),
    ],
)
def test_command_that_needs_the_database_says_so(local: Shell, words: tuple[str, ...]) -> None:
    database, api = local.database, "http://127.0.0.1:1"
    for given, environment in (
        (("--url", api), {"HOLDFAST_DATABASE_URL": database}),
        ((), {"HOLDFAST_URL": api, "HOLDFAST_DATABASE_URL": ""}),
    ):
        assert local.run(*given, *words, code=2, **environment) == ""
        assert f"needs the database, and cannot use the API at {api}" in local.errors
    assert local.json("tokens", "list") == {"items": []}


def test_url_for_other_commands_does_not_prevent_database_commands(local: Shell) -> None:
    assert local.run("subscriptions", "list", HOLDFAST_URL="http://127.0.0.1:1") is not None
    assert local.run("tokens", "list", HOLDFAST_URL="http://127.0.0.1:1") is not None


def test_openapi_command_prints_the_document(local: Shell) -> None:
    document = json.loads(local.run("openapi"))
    assert document["openapi"] == "3.1.0"
    assert "/runs" in document["paths"]
