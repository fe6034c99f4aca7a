"""Output of tasks and libraries appears in the worker's log, and each line names its run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Run
from tests.integration.worker_support import Stage

TASKS = "tests.integration.output_tasks"

# Output that bypasses Python's streams. It is attributed to the run that is executed when it is read.
RAW = ("started", "written")

Line = dict[str, Any]


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path, tasks=(TASKS,))
    yield stage
    stage.close()


def work(stage: Stage, *arguments: str, **settings: Any) -> str:
    """The complete output of a worker that runs until there are no more runs."""
    worker = stage.start("--until-empty", "--slots", "1", *arguments, **settings)
    assert worker.wait(60) == 0
    return stage.file("worker-0.log").read_text()


def lines_of(lines: list[Line], run: Run) -> dict[str, Line]:
    return {line["message"]: line for line in lines if line.get("run_id") == run.id and "message" in line}


def parsed(output: str) -> list[Line]:
    return [json.loads(line) for line in output.splitlines()]


def test_each_line_of_a_task_is_json_with_its_run_attempt_and_level(stage: Stage) -> None:
    runs = [stage.submit("output.everything", word=word) for word in ("one", "two")]
    lines = parsed(work(stage))
    for run, word in zip(runs, ("one", "two"), strict=True):
        said = lines_of(lines, run)
        assert {line["attempt_count"] for line in said.values()} == {1}
        levels = {message.removesuffix(f" {word}"): line["level"] for message, line in said.items()}
        warned = [message for message in levels if "UserWarning: doubtful" in message]
        assert levels.pop(warned[0]) == "warning"
        quiet = ("printed", "to stderr", "informed", "threaded", "bytes", "begun")
        assert {name: level for name, level in levels.items() if not name.startswith(RAW)} == {
            **dict.fromkeys(quiet, "info"),
            "warned": "warning",
        }
        assert (said[f"printed {word}"]["event"], said[f"printed {word}"]["stream"]) == ("run.printed", "stdout")
        assert (said[f"warned {word}"]["event"], said[f"warned {word}"]["logger"]) == ("run.logged", "shop.orders")
        assert said[f"printed {word}"]["task"] == "output.everything"


def test_output_of_native_code_and_other_programs_is_json_with_the_run(stage: Stage) -> None:
    run = stage.submit("output.everything", word="one")
    said = lines_of(parsed(work(stage)), run)
    for name in RAW:
        assert (said[f"{name} one"]["event"], said[f"{name} one"]["attempt_count"]) == ("run.printed", 1)


def test_an_inline_task_is_logged_with_its_run(stage: Stage) -> None:
    run = stage.submit("output.inline", word="here")
    said = lines_of(parsed(work(stage)), run)
    assert {message: line["event"] for message, line in said.items()} == {
        "printed here": "run.printed",
        "informed here": "run.logged",
    }


def test_errors_are_one_line_each_and_hide_passwords_everywhere(stage: Stage) -> None:
    run = stage.submit("output.trouble")
    output = work(stage)
    lines = parsed(output)
    assert "hunter2" not in output
    assert "abc123" not in output
    assert "swordfish" not in output
    [logged] = [line for line in lines if line.get("message", "").startswith("it failed")]
    assert logged["level"] == "error"
    assert "ValueError: cannot reach postgresql://me:********@db/x" in logged["traceback"]
    [uncaught] = [line for line in lines if line["event"] == "run.uncaught"]
    assert (uncaught["run_id"], uncaught["where"], uncaught["error"]) == (
        run.id,
        "exploding",
        "LookupError: in a thread",
    )
    [settled] = [line for line in lines if line["event"] == "run.settled"]
    shown = "ConnectionError: postgresql://me:********@db:5432/x?sslpassword=******** refused"
    assert settled["error"].startswith(shown)
    kept = stage.client.get(run).last_error
    assert kept is not None
    assert kept.startswith(shown)
    assert "hunter2" not in str(stage.query("select error::text from holdfast.attempts where run_id = %s", run.id))


@pytest.mark.parametrize("log_format", ["json", "pretty"])
def test_secrets_in_json_dicts_and_headers_are_masked_in_the_log_and_in_the_record(
    stage: Stage, log_format: str
) -> None:
    run = stage.submit("output.secrets")
    output = work(stage, log_format=log_format)
    assert output.count("Authorization: Bearer ********") >= 3
    assert "hunter2" not in output
    for table in ("runs", "attempts", "events", "logs"):
        column = "id" if table == "runs" else "run_id"
        stored = stage.query(f"select t::text from holdfast.{table} t where {column} = %s", run.id)
        assert "hunter2" not in str(stored)
    assert "********" in str(stage.client.get(run).last_error)


def test_streams_replaced_by_a_task_are_restored_for_the_next_run(stage: Stage) -> None:
    stage.submit("output.swap")
    run = stage.submit("output.everything", word="next")
    assert {"printed next", "to stderr next", "informed next"} <= lines_of(parsed(work(stage)), run).keys()


def test_output_before_a_crash_is_kept(stage: Stage) -> None:
    run = stage.submit("output.crash")
    said = lines_of(parsed(work(stage)), run)
    assert {"about to crash", "Fatal Python error: Aborted"} <= said.keys()


def test_pretty_log_lines_name_the_run(stage: Stage) -> None:
    run = stage.submit("output.everything", word="one")
    output = work(stage, log_format="pretty")
    for message in ("printed one", "informed one", "warned one"):
        [line] = [line for line in output.splitlines() if message in line]
        assert run.id in line
    assert "started one" in output


def test_a_log_format_configured_by_the_user_is_kept(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_logging.py").write_text(
        "import logging\nlogging.basicConfig(format='mine: %(message)s', level=logging.DEBUG)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = stage.submit("output.everything", word="one")
    said = lines_of(parsed(work(stage, tasks=f"{TASKS},own_logging")), run)
    assert said["mine: informed one"]["event"] == "run.printed"
