"""holdfast submit: parameters, options, waiting, and every way to be refused."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from uuid import UUID

import pytest

from tests.integration.cli_support import Cli, Inside, Shell, finish


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Cli:
    return Cli(tmp_path, database_url=database_url)


@pytest.fixture
def here(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Inside:
    return Inside(tmp_path, {"database_url": database_url}, monkeypatch, capsys)


def shown(cli: Shell, run_id: str) -> dict[str, object]:
    found: dict[str, object] = cli.ok("runs", "show", run_id, "--json").json
    return found


def test_a_submit_prints_the_id_alone(cli: Cli, here: Inside) -> None:
    answer = cli.ok("submit", "mock")
    assert str(UUID(answer.out.strip())) == answer.out.strip()
    assert answer.err == ""
    assert shown(here, answer.out.strip())["parameters"] == {}


def test_a_submit_prints_the_run_as_json(here: Inside) -> None:
    run = here.ok("submit", "mock", "-p", "seconds=2", "--json").json
    assert (run["model"], run["status"], run["parameters"], run["queue"]) == (
        "mock",
        "PENDING",
        {"seconds": 2},
        "default",
    )


def test_parameters_come_from_a_file_and_pairs_win_over_it(here: Inside) -> None:
    (here.directory / "parameters.json").write_text('{"seconds": 3, "steps": 7}')
    run = here.ok("submit", "mock", "-f", "parameters.json", "-p", "seconds=1", "--json").json
    assert run["parameters"] == {"seconds": 1, "steps": 7}


def test_parameters_come_from_stdin(cli: Cli) -> None:
    run = cli.ok("submit", "mock", "-f", "-", "--json", text='{"steps": 4}').json
    assert run["parameters"] == {"steps": 4}


def test_options_reach_the_run(here: Inside) -> None:
    options = ["--queue", "q", "--priority", "-7", "--tag", "a", "--tag", "b", "--concurrency-key", "c"]
    run = here.ok("submit", "mock", *options, "--run-after", "2h", "--json").json
    assert (run["queue"], run["priority"], run["tags"], run["concurrency_key"]) == ("q", -7, ["a", "b"], "c")
    assert run["run_after"] > run["created_at"]


def test_a_time_with_its_zone_is_kept(here: Inside) -> None:
    run = here.ok("submit", "mock", "--run-after", "2040-01-31T08:00:00+10:00", "--json").json
    assert run["run_after"] == "2040-01-30T22:00:00Z"


def test_the_same_key_finds_the_same_run(here: Inside) -> None:
    first = here.ok("submit", "mock", "-p", "steps=3", "--key", "report-42")
    again = here.ok("submit", "mock", "-p", "steps=3", "--key", "report-42")
    assert again.out == first.out
    assert "which an earlier request created" in again.err


def test_the_same_key_with_another_payload_is_a_conflict_that_names_the_field(here: Inside) -> None:
    here.ok("submit", "mock", "-p", "steps=3", "--key", "report-42")
    told = here.refused("submit", "mock", "-p", "steps=4", "--key", "report-42", code=8)
    assert "report-42" in told
    assert "/parameters/steps" in told


def test_an_active_run_is_found_by_its_payload_if_asked(here: Inside) -> None:
    first = here.ok("submit", "mock", "-p", "steps=3", "--dedupe", "active")
    assert here.ok("submit", "mock", "-p", "steps=3.0", "--dedupe", "10m").out == first.out
    assert here.ok("submit", "mock", "-p", "steps=3").out != first.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["mocc"], "baseline_forecast_v1, "),
        (["mock", "-p", "secs=1"], "/secs: unknown parameter; did you mean seconds?"),
        (["mock", "-p", "steps=many"], "/steps"),
        (["baseline_forecast_v1"], "/horizon_months: missing"),
        (["mock", "-p", "steps"], "-p 'steps' is not key=value"),
        (["mock", "-p", "=1"], "is not key=value"),
        (["mock", "-p", "steps:=many"], "the value after := must be JSON"),
        (["mock", "-p", "steps=1", "-p", "steps=2"], "parameter 'steps' is given twice"),
        (["mock", "--priority", "101"], "/priority: must be a whole number from -100 to 100"),
        (["mock", "--priority", "high"], "'high' is not a valid integer"),
        (["mock", "--run-after", "tomorrow"], "'tomorrow' is not a time"),
        (["mock", "--run-after", "2040-01-31T08:00:00"], "has no time zone"),
        (["mock", "--dedupe", "maybe"], "neither active, off, nor a duration"),
        (["mock", "--key", "two words"], "/key: must be 1 to 255 visible ASCII characters"),
        (["mock", "--queue", ""], "/queue"),
        (["mock", "--timeout", "3"], "--timeout needs --wait"),
        (["mock", "--wait", "--timeout", "soon"], "'soon' is not a duration"),
        (["mock", "-f", "nowhere.json"], "No such file"),
        (["mock", "-f", "list.json"], "does not contain a JSON object"),
        (["mock", "-f", "broken.json"], "JSON"),
        (["mock", "-f", "twice.json"], "/steps"),
        (["mock", "--wat"], "No such option"),
        ([], "Missing argument 'TASK'"),
    ],
)
def test_bad_input_is_refused_in_one_line(here: Inside, arguments: list[str], told: str) -> None:
    (here.directory / "list.json").write_text("[1]")
    (here.directory / "broken.json").write_text('{"steps": ')
    (here.directory / "twice.json").write_text('{"steps": 1, "steps": 2}')
    assert told in here.refused("submit", *arguments, code=2)
    assert here.ok("runs", "list", "--json").json["items"] == []


def test_an_unreachable_database_is_told_apart(here: Inside) -> None:
    away = {"HOLDFAST_DATABASE_URL": "postgresql://me:hunter2@127.0.0.1:1/x"}
    told = here.refused("submit", "mock", code=69, env=away)
    assert "does not respond" in told
    assert "hunter2" not in told


def test_waiting_prints_the_result_and_tells_progress_beside_it(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", "--slots", "1")
    try:
        answer = here("submit", "mock", "-p", "seconds=1", "-p", "steps=4", "--wait", "--timeout", "50")
    finally:
        finish(worker)
    assert answer.code == 0, answer
    assert answer.json["notes"] == "simulated"
    assert answer.json["inputs"] == {"seconds": 1, "steps": 4}
    assert answer.err.startswith(f"run {answer.json['run_id']}\n")
    assert "RUNNING, attempt 1 of 3" in answer.err
    assert answer.err.splitlines()[-1].startswith("SUCCEEDED")
    assert "\x1b" not in answer.err + answer.out


def test_waiting_for_a_run_that_fails_says_so_with_its_code(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", "--slots", "1")
    try:
        told = here("submit", "mock", "-p", "seconds=0", "-p", "fail_times=1", "-p", "fatal=true", "--wait")
    finally:
        finish(worker)
    assert (told.code, told.out) == (3, "")
    assert "simulated failure" in told.err.splitlines()[-1]


def test_a_wait_that_is_over_leaves_the_run_and_says_why_it_waits(here: Inside) -> None:
    answer = here("submit", "mock", "--wait", "--timeout", "2.5")
    assert (answer.code, answer.out) == (5, "")
    assert "no worker is alive; start one with: holdfast worker" in answer.err
    run_id = answer.err.split()[1]
    assert shown(here, run_id)["status"] == "PENDING"


def test_an_interrupt_leaves_the_run_and_says_how_to_go_on(cli: Cli, here: Inside) -> None:
    process = cli.start("submit", "mock", "--wait")
    assert process.stderr is not None
    said = process.stderr.readline().split()
    process.stderr.readline()
    answer = finish(process, signal.SIGINT)
    assert answer.code == 130
    assert f"holdfast runs cancel {said[1]}" in answer.err
    assert "Traceback" not in answer.err
    assert shown(here, said[1])["status"] == "PENDING"


def test_results_outside_of_ascii_survive_a_narrow_encoding(cli: Cli, here: Inside) -> None:
    run_id = here.ok("submit", "mock", "-p", "payload=日本 ü", "-p", "seconds=0").out.strip()
    here.work()
    narrow = cli("runs", "result", run_id, env={"PYTHONIOENCODING": "latin-1"})
    assert narrow.code == 0
    assert json.loads(narrow.out)["inputs"]["payload"] == "日本 ü"
    assert narrow.out.isascii()
    assert "日本" in cli.ok("runs", "result", run_id).out
    assert "\\u65e5" in cli("runs", "show", run_id, env={"PYTHONIOENCODING": "ascii"}).out
