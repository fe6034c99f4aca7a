"""holdfast db, config, tasks, queues, workers, and general behavior of the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from holdfast.schema import migrate
from tests.integration.cli_support import Cli, InProcessShell, finish

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Cli:
    return Cli(tmp_path, database_url=database_url)


@pytest.fixture
def shell(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InProcessShell:
    return InProcessShell(tmp_path, {"database_url": database_url}, monkeypatch, capsys)


def set_schema(database_url: str, number: int) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update holdfast.migration set version_num = %s", [f"{number:04}"])


def test_help_explains_shell_completion_and_it_works(cli: Cli) -> None:
    help_text = cli.ok("--help").out
    for shell in ("bash", "zsh", "fish"):
        assert f"_HOLDFAST_COMPLETE={shell}_source holdfast" in help_text
        assert "_HOLDFAST_COMPLETE" in cli(env={"_HOLDFAST_COMPLETE": f"{shell}_source"}).out
    words = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "holdfast runs at", "COMP_CWORD": "2"}
    assert cli(env=words).lines == ["plain,attempts"]


def test_help_does_not_import_heavy_modules(cli: Cli) -> None:
    code = (
        "import sys; from holdfast.cli import main; main(['--help']);"
        "heavy = {'psycopg', 'sqlalchemy', 'alembic', 'pydantic', 'structlog', 'numpy', 'flask', 'asyncio'};"
        "sys.exit(', '.join(sorted(heavy & sys.modules.keys())) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=cli.environment())
    assert done.returncode == 0, done.stderr
    assert "holdfast [OPTIONS] COMMAND" in done.stdout


def test_every_command_has_help(shell: InProcessShell) -> None:
    from holdfast.cli.app import COMMANDS

    for name in COMMANDS:
        assert "Usage: " in shell.ok(name, "--help").out


def test_mistyped_command_gets_a_suggestion(shell: InProcessShell) -> None:
    assert "Did you mean submit?" in shell.refused("sumbit", code=2)


def test_error_is_one_line_or_a_traceback_on_request(shell: InProcessShell) -> None:
    assert "Traceback" in shell("--traceback", "runs", "show", "x").err
    assert "Traceback" in shell("runs", "show", "x", env={"HOLDFAST_LOG_LEVEL": "debug"}).err


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"HOLDFAST_LEASE_SECOND": "3"}, "did you mean HOLDFAST_LEASE_SECONDS?"),
        ({"HOLDFAST_PORT": "eighty"}, "setting HOLDFAST_PORT cannot be 'eighty'"),
        ({"HOLDFAST_TASKS": "no.such.module"}, "the tasks of module 'no.such.module' cannot be loaded"),
        ({"HOLDFAST_DATABASE_URL": "mysql://x/y"}, "must be the URL of a PostgreSQL server"),
    ],
)
def test_invalid_setting_prevents_the_start_with_a_one_line_error(
    shell: InProcessShell, env: dict[str, str], message: str
) -> None:
    assert message in shell.refused("runs", "list", code=1, env=env)


def test_settings_are_shown_with_their_origin_and_without_secrets(shell: InProcessShell) -> None:
    secret = {"HOLDFAST_DATABASE_URL": "postgresql://me:hunter2@db/x"}
    answer = shell("config", "show", "--json", env=secret)
    shown = {item["name"]: item for item in answer.json["items"]}
    assert shown["database_url"]["from"] == "environment HOLDFAST_DATABASE_URL"
    assert shown["lease_seconds"] == {"name": "lease_seconds", "value": "60.0", "from": "default"}
    assert "hunter2" not in answer.out
    assert "hunter2" not in shell("config", "show", env=secret).out


def test_the_database_is_upgraded_only_when_asked(
    server_connection: psycopg.Connection, server_url: str, shell: InProcessShell
) -> None:
    name = f"holdfast_cli_{uuid4().hex}"
    server_connection.execute(f"create database {name}")
    try:
        fresh = {"HOLDFAST_DATABASE_URL": urlsplit(server_url)._replace(path=f"/{name}").geturl()}
        assert "run: holdfast db upgrade" in shell.refused("runs", "list", code=1, env=fresh)
        assert shell("db", "current", env=fresh).out == "none\n"
        assert shell("db", "upgrade", env=fresh).err.endswith("; it was empty\n")
        assert "already" in shell("db", "upgrade", env=fresh).err
        assert shell("db", "current", "--json", env=fresh).json == {
            "current": migrate.latest(),
            "latest": migrate.latest(),
        }
        assert shell("runs", "list", env=fresh).code == 0
        assert shell("db", "check", env=fresh).code == 0
    finally:
        server_connection.execute(f"drop database {name} with (force)")


def test_schema_mismatch_is_reported(shell: InProcessShell, database_url: str) -> None:
    latest = int(migrate.latest())
    set_schema(database_url, latest + 1)
    shell.ok("runs", "list")
    assert shell.ok("db", "upgrade").err.endswith("nothing was changed\n")
    set_schema(database_url, latest + 2)
    assert "too new for this release" in shell.refused("runs", "list", code=1)
    assert "too new for this release" in shell.refused("db", "upgrade", code=1)
    assert "too new for this release" in shell.refused("worker", "--until-empty", code=1)


def test_drift_is_reported(shell: InProcessShell, database_url: str) -> None:
    assert shell.ok("db", "check", "--json").json == {"drift": False, "items": []}
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("drop index holdfast.ready_by_task")
    drifted = shell("db", "check")
    assert drifted.code == 1
    assert "ready_by_task" in drifted.out


def test_db_url_prints_the_address_of_the_database(shell: InProcessShell, database_url: str, tmp_path: Path) -> None:
    assert shell.ok("db", "url").out.strip() == database_url


def test_the_tasks_are_listed_and_described_without_a_database(shell: InProcessShell) -> None:
    nowhere = {"HOLDFAST_DATABASE_URL": "postgresql://127.0.0.1:1/x"}
    listed = shell("tasks", "list", "--json", env=nowhere).json["items"]
    assert {task["name"] for task in listed} >= {"mock", "baseline_forecast_v1"}
    shown = shell("tasks", "show", "mock", "--json", env=nowhere).json
    assert shown["retry"] == {"max_attempts": 3, "delays": [5.0, 20.0, 60.0], "backoff": None}
    assert shown["parameters"]["properties"]["steps"]["default"] == 10
    assert "fail_times" in shell("tasks", "show", "mock", env=nowhere).out
    assert "registered: " in shell.refused("tasks", "show", "mocc", code=2)


def test_a_module_of_the_current_directory_registers_tasks(cli: Cli) -> None:
    (cli.directory / "mine.py").write_text(
        "from holdfast import task\n@task('double')\ndef double(x: int) -> int:\n    return 2 * x\n"
    )
    (cli.directory / "holdfast.toml").write_text('tasks = ["mine"]\n')
    run_id = cli.ok("submit", "double", "-p", "x=21").out.strip()
    cli.work()
    assert cli.ok("runs", "result", run_id).out == "42\n"


def test_a_queue_is_paused_and_resumed(shell: InProcessShell) -> None:
    shell.submit("--queue", "q")
    shell.ok("queues", "pause", "q", "--reason", "tea")
    (queue,) = shell.ok("queues", "list", "--json").json["items"]
    assert (queue["name"], queue["ready"], queue["pause_reason"]) == ("q", 1, "tea")
    assert queue["paused_at"].endswith("Z")
    shell.ok("queues", "resume", "q")
    assert shell.ok("queues", "list").lines[1].split()[:4] == ["q", "1", "0", "0"]


def test_a_worker_is_listed_and_drained(cli: Cli, shell: InProcessShell) -> None:
    assert "no worker is alive" in shell.ok("workers", "list").err
    worker = cli.start("worker", "--name", "anna", "--queues", "a,b", "--slots", "3")
    try:
        found: list[dict[str, object]] = []
        while not found:
            assert worker.poll() is None
            found = shell.ok("workers", "list", "--json").json["items"]
        (one,) = found
        assert (one["name"], one["queues"], one["slots"], one["status"]) == ("anna", ["a", "b"], 3, "idle")
        shell.ok("workers", "drain", str(one["id"]))
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    finally:
        if worker.poll() is None:
            finish(worker)
    assert shell.ok("workers", "list", "--json").json["items"] == []
    assert [item["name"] for item in shell.ok("workers", "list", "--all", "--json").json["items"]] == ["anna"]


def test_unknown_worker_cannot_be_drained(shell: InProcessShell) -> None:
    assert NOBODY in shell.refused("workers", "drain", NOBODY, code=6)
    assert shell.refused("workers", "drain", "zz", code=6) == "'zz' is not the id of a worker"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--executor", "magic"], 2, "'magic' is not one of"),
        (["--slots", "0"], 2, "0 is not in the range"),
        (["--queues", ","], 2, "name at least one"),
        (["--tasks", "no.such.module"], 1, "cannot be loaded"),
        (["--tasks", "../evil"], 1, "is not a module name"),
    ],
)
def test_a_worker_that_cannot_start_says_why(
    shell: InProcessShell, arguments: list[str], code: int, message: str
) -> None:
    assert message in shell.refused("worker", *arguments, code=code)


def test_a_worker_without_a_database_says_so(shell: InProcessShell) -> None:
    away = {"HOLDFAST_DATABASE_URL": "postgresql://127.0.0.1:1/x"}
    assert "does not respond" in shell.refused("worker", code=69, env=away)
