"""holdfast submit: parameters, options, waiting, and every kind of rejection."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from uuid import UUID

import pytest

from tests.integration.cli_support import Cli, InProcessShell, Shell, finish


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Cli:
    return Cli(tmp_path, database_url=database_url)


@pytest.fixture
def shell(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InProcessShell:
    return InProcessShell(tmp_path, {"database_url": database_url}, monkeypatch, capsys)


def shown(cli: Shell, run_id: str) -> dict[str, object]:
    found: dict[str, object] = cli.ok("runs", "show", run_id, "--json").json
    return found


def test_submit_prints_only_the_id(cli: Cli, shell: InProcessShell) -> None:
    answer = cli.ok("submit", "mock")
    assert str(UUID(answer.out.strip())) == answer.out.strip()
    assert answer.err == ""
    assert shown(shell, answer.out.strip())["parameters"] == {}


def test_submit_prints_the_run_as_json_on_request(shell: InProcessShell) -> None:
    run = shell.ok("submit", "mock", "-p", "seconds=2", "--json").json
    assert (run["model"], run["status"], run["parameters"], run["queue"]) == (
        "mock",
        "PENDING",
        {"seconds": 2},
        "default",
    )


def test_parameters_are_read_from_a_file_and_pairs_override_them(shell: InProcessShell) -> None:
    (shell.directory / "parameters.json").write_text('{"seconds": 3, "steps": 7}')
    run = shell.ok("submit", "mock", "-f", "parameters.json", "-p", "seconds=1", "--json").json
    assert run["parameters"] == {"seconds": 1, "steps": 7}


def test_parameters_are_read_from_stdin(cli: Cli) -> None:
    run = cli.ok("submit", "mock", "-f", "-", "--json", text='{"steps": 4}').json
    assert run["parameters"] == {"steps": 4}


def test_options_are_stored_with_the_run(shell: InProcessShell) -> None:
    options = ["--queue", "q", "--priority", "-7", "--tag", "a", "--tag", "b", "--concurrency-key", "c"]
    run = shell.ok("submit", "mock", *options, "--run-after", "2h", "--json").json
    assert (run["queue"], run["priority"], run["tags"], run["concurrency_key"]) == ("q", -7, ["a", "b"], "c")
    assert run["run_after"] > run["created_at"]


def test_a_time_with_its_zone_is_kept(shell: InProcessShell) -> None:
    run = shell.ok("submit", "mock", "--run-after", "2040-01-31T08:00:00+10:00", "--json").json
    assert run["run_after"] == "2040-01-30T22:00:00Z"


def test_the_same_key_finds_the_same_run(shell: InProcessShell) -> None:
    first = shell.ok("submit", "mock", "-p", "steps=3", "--key", "report-42")
    again = shell.ok("submit", "mock", "-p", "steps=3", "--key", "report-42")
    assert again.out == first.out
    assert "which an earlier request created" in again.err


def test_the_same_key_with_another_payload_is_a_conflict_that_names_the_field(shell: InProcessShell) -> None:
    shell.ok("submit", "mock", "-p", "steps=3", "--key", "report-42")
    message = shell.refused("submit", "mock", "-p", "steps=4", "--key", "report-42", code=8)
    assert "report-42" in message
    assert "/parameters/steps" in message


def test_active_run_with_the_same_payload_is_found_on_request(shell: InProcessShell) -> None:
    first = shell.ok("submit", "mock", "-p", "steps=3", "--dedupe", "active")
    assert shell.ok("submit", "mock", "-p", "steps=3.0", "--dedupe", "10m").out == first.out
    assert shell.ok("submit", "mock", "-p", "steps=3").out != first.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mocc"], "baseline_forecast_v1, "),
        (["mock", "-p", "secs=1"], "/secs: unknown parameter; did you mean seconds?"),
        (["mock", "-p", "steps=many"], "/steps"),
        (["baseline_forecast_v1"], "/horizon_months: missing"),
        (["mock", "-p", "steps"], "-p 'steps' must have the form key=value"),
        (["mock", "-p", "=1"], "must have the form key=value"),
        (["mock", "-p", "steps:=many"], "the value after := must be JSON"),
        (["mock", "-p", "steps=1", "-p", "steps=2"], "parameter 'steps' is given twice"),
        (["mock", "--priority", "101"], "/priority: must be a whole number from -100 to 100"),
        (["mock", "--priority", "high"], "'high' is not a valid integer"),
        (["mock", "--run-after", "tomorrow"], "'tomorrow' is not a time"),
        (["mock", "--run-after", "2040-01-31T08:00:00"], "has no time zone"),
        (["mock", "--dedupe", "maybe"], "neither active, off, nor a duration"),
        (["mock", "--key", "two words"], "/key: must be 1 to 255 visible ASCII characters"),
        (["mock", "--queue", ""], "/queue"),
        (["mock", "--timeout", "3"], "--timeout requires --wait"),
        (["mock", "--wait", "--timeout", "soon"], "'soon' is not a duration"),
        (["mock", "-f", "nowhere.json"], "No such file"),
        (["mock", "-f", "list.json"], "does not contain a JSON object"),
        (["mock", "-f", "broken.json"], "JSON"),
        (["mock", "-f", "twice.json"], "/steps"),
        (["mock", "--wat"], "No such option"),
        ([], "Missing argument 'TASK'"),
    ],
)
def test_bad_input_is_refused_in_one_line(shell: InProcessShell, arguments: list[str], message: str) -> None:
    (shell.directory / "list.json").write_text("[1]")
    (shell.directory / "broken.json").write_text('{"steps": ')
    (shell.directory / "twice.json").write_text('{"steps": 1, "steps": 2}')
    assert message in shell.refused("submit", *arguments, code=2)
    assert shell.ok("runs", "list", "--json").json["items"] == []


def test_unreachable_database_has_its_own_exit_code(shell: InProcessShell) -> None:
    away = {"HOLDFAST_DATABASE_URL": "postgresql://me:hunter2@127.0.0.1:1/x"}
    message = shell.refused("submit", "mock", code=69, env=away)
    assert "does not respond" in message
    assert "hunter2" not in message


def test_submit_wait_prints_the_result_on_stdout_and_progress_on_stderr(cli: Cli, shell: InProcessShell) -> None:
    worker = cli.start("worker", "--slots", "1")
    try:
        answer = shell("submit", "mock", "-p", "seconds=1", "-p", "steps=4", "--wait", "--timeout", "50")
    finally:
        finish(worker)
    assert answer.code == 0, answer
    assert answer.json["notes"] == "simulated"
    assert answer.json["inputs"] == {"seconds": 1, "steps": 4}
    assert answer.err.startswith(f"run {answer.json['run_id']}\n")
    assert "RUNNING, attempt 1 of 3" in answer.err
    assert answer.err.splitlines()[-1].startswith("SUCCEEDED")
    assert "\x1b" not in answer.err + answer.out


def test_submit_wait_for_a_failing_run_has_its_exit_code(cli: Cli, shell: InProcessShell) -> None:
    worker = cli.start("worker", "--slots", "1")
    try:
        message = shell("submit", "mock", "-p", "seconds=0", "-p", "fail_times=1", "-p", "fatal=true", "--wait")
    finally:
        finish(worker)
    assert (message.code, message.out) == (3, "")
    assert "simulated failure" in message.err.splitlines()[-1]


def test_wait_that_times_out_leaves_the_run_and_explains_it(shell: InProcessShell) -> None:
    answer = shell("submit", "mock", "--wait", "--timeout", "2.5")
    assert (answer.code, answer.out) == (5, "")
    assert "no worker is alive; start one with: holdfast worker" in answer.err
    run_id = answer.err.split()[1]
    assert shown(shell, run_id)["status"] == "PENDING"


def test_interrupted_wait_leaves_the_run_and_shows_how_to_continue(cli: Cli, shell: InProcessShell) -> None:
    process = cli.start("submit", "mock", "--wait")
    assert process.stderr is not None
    said = process.stderr.readline().split()
    process.stderr.readline()
    answer = finish(process, signal.SIGINT)
    assert answer.code == 130
    assert f"holdfast runs cancel {said[1]}" in answer.err
    assert "Traceback" not in answer.err
    assert shown(shell, said[1])["status"] == "PENDING"


def test_non_ascii_results_are_printed_despite_an_ascii_encoding(cli: Cli, shell: InProcessShell) -> None:
    run_id = shell.ok("submit", "mock", "-p", "payload=日本 ü", "-p", "seconds=0").out.strip()
    shell.work()
    narrow = cli("runs", "result", run_id, env={"PYTHONIOENCODING": "latin-1"})
    assert narrow.code == 0
    assert json.loads(narrow.out)["inputs"]["payload"] == "日本 ü"
    assert narrow.out.isascii()
    assert "日本" in cli.ok("runs", "result", run_id).out
    assert "\\u65e5" in cli("runs", "show", run_id, env={"PYTHONIOENCODING": "ascii"}).out
