"""holdfast runs: reading, waiting, steering, comparing and verifying."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psycopg
import pytest

from holdfast.cli import output
from tests.integration.cli_support import Cli, Inside, finish

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Cli:
    return Cli(tmp_path, database_url=database_url)


@pytest.fixture
def here(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Inside:
    return Inside(tmp_path, {"database_url": database_url}, monkeypatch, capsys)


def test_runs_are_listed_newest_first_in_pages(here: Inside) -> None:
    ids = [here.submit("-p", f"steps={number}") for number in range(1, 6)]
    first = here.ok("runs", "list", "--limit", "2", "--json").json
    assert [run["run_id"] for run in first["items"]] == [ids[4], ids[3]]
    second = here.ok("runs", "list", "--limit", "3", "--cursor", first["next_cursor"], "--json").json
    assert [run["run_id"] for run in second["items"]] == [ids[2], ids[1], ids[0]]
    assert here.ok("runs", "list", "--cursor", ids[0], "--json").json == {"items": [], "next_cursor": None}


def test_lists_fit_80_columns_and_show_ids_that_can_be_typed(here: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = ("-p", "fail_times=1", "-p", "fatal=true", "-p", "seconds=0")
    run_id = here.submit(*parameters, "--queue", "a-queue-with-a-long-name")
    here.work("--name", "a worker with a rather long name")
    here.ok("runs", "cancel", here.submit(), "--reason", "because " * 40)
    monkeypatch.setattr(output, "is_terminal", lambda stream=None: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (("runs", "attempts", run_id), ("runs", "events", run_id), ("workers", "list", "--all")):
        lines = here.ok(*arguments).lines
        assert len(lines) > 1
        assert max(map(len, lines)) <= 80, lines
    titles, _, failed = here.ok("runs", "list").lines
    assert max(len(titles), len(failed)) <= 80
    assert titles.split() == ["RUN", "TASK", "STATUS", "QUEUE", "ATTEMPTS", "CREATED", "REMARK"]
    shortened, *_ = failed.split()
    assert shortened == run_id[:18]
    assert here.ok("runs", "show", shortened, "--json").json["run_id"] == run_id
    monkeypatch.setenv("COLUMNS", "300")
    wide = here.ok("runs", "list").out
    assert run_id in wide
    assert "a-queue-with-a-long-name" in wide


def test_a_table_without_a_terminal_is_plain_and_whole(here: Inside) -> None:
    run_id = here.submit("--queue", "a-queue-with-" + "x" * 200)
    answer = here.ok("runs", "list")
    header, row = answer.lines
    assert header.split() == ["RUN", "TASK", "STATUS", "QUEUE", "ATTEMPTS", "CREATED", "FINISHED", "REMARK"]
    assert row.split()[:5] == [run_id, "mock", "PENDING", "a-queue-with-" + "x" * 200, "0/3"]
    assert row.split()[5].endswith("Z")
    assert "\x1b" not in answer.out


def test_filters_narrow_the_list(here: Inside) -> None:
    tagged = here.submit("--tag", "blue", "--queue", "q")
    cancelled = here.submit()
    here.ok("runs", "cancel", cancelled)

    def found(*filters: str) -> list[str]:
        return [run["run_id"] for run in here.ok("runs", "list", "--json", *filters).json["items"]]

    assert found("--tag", "blue") == found("--queue", "q") == found("--status", "pending") == [tagged]
    assert found("--status", "CANCELLED") == [cancelled]
    assert found("--task", "mock") == found("--model", "mock") == [cancelled, tagged]
    assert found("--task", "other") == found("--status", "RUNNING") == []


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["show", "not-an-id"], 6, "'not-an-id' is not the id of a run"),
        (["show", NOBODY], 6, f"no run has the id {NOBODY}"),
        (["result", NOBODY], 6, NOBODY),
        (["events", NOBODY], 6, NOBODY),
        (["attempts", NOBODY], 6, NOBODY),
        (["logs", NOBODY], 6, NOBODY),
        (["why", NOBODY], 6, NOBODY),
        (["wait", NOBODY], 6, NOBODY),
        (["cancel", NOBODY], 6, NOBODY),
        (["retry", NOBODY], 6, NOBODY),
        (["diff", NOBODY, NOBODY], 6, NOBODY),
        (["verify", "x"], 6, "not the id of a run"),
        (["list", "--status", "LOST"], 2, "'LOST' is not one of"),
        (["list", "--limit", "201"], 2, "/limit: must be from 1 to 200"),
        (["list", "--limit", "0"], 2, "/limit: must be from 1 to 200"),
        (["list", "--cursor", "x"], 2, "/cursor"),
        (["show"], 2, "Missing argument"),
        (["shwo", NOBODY], 2, "No such command 'shwo'"),
    ],
)
def test_what_is_not_there_and_what_makes_no_sense_have_their_codes(
    here: Inside, arguments: list[str], code: int, told: str
) -> None:
    assert told in here.refused("runs", *arguments, code=code)


def test_a_run_is_shown_to_people_and_to_programs(here: Inside) -> None:
    run_id = here.submit("-p", 'payload={"a": 1}', "--tag", "t")
    run = here.ok("runs", "show", run_id, "--json").json
    assert run["run_id"] == run_id
    assert run["links"]["result"] == f"/runs/{run_id}/result"
    lines = dict(line.split(None, 1) for line in here.ok("runs", "show", run_id).lines)
    assert lines["status"] == "PENDING"
    assert lines["parameters"] == '{"payload":{"a":1}}'
    assert lines["tags"] == "t"


def test_a_pending_run_says_why_it_waits(here: Inside) -> None:
    here.ok("queues", "pause", "default", "--reason", "maintenance")
    run_id = here.submit()
    reasons = here.ok("runs", "why", run_id, "--json").json["items"]
    assert [reason["code"] for reason in reasons] == ["paused", "no-worker"]
    assert "maintenance" in reasons[0]["detail"]
    assert "no worker is alive" in here.ok("runs", "why", run_id).out


def test_a_result_before_the_end_is_a_conflict(here: Inside) -> None:
    assert "it has no result yet" in here.refused("runs", "result", here.submit(), code=8)


def test_runs_are_cancelled_and_reopened_together(here: Inside) -> None:
    ids = [here.submit() for _ in range(2)]
    assert here.ok("runs", "cancel", *ids, "--reason", "enough").lines == [f"{one}  CANCELLED" for one in ids]
    assert "enough" in here.refused("runs", "result", ids[0], code=4)
    assert here("runs", "wait", ids[0]).code == 4
    assert [line.split()[1] for line in here.ok("runs", "retry", *ids).lines] == ["PENDING", "PENDING"]
    types = [event["type"] for event in here.ok("runs", "events", ids[0], "--json").json["items"]]
    assert types == ["SUBMITTED", "CANCELLED", "REOPENED"]


def test_runs_are_postponed_together(here: Inside) -> None:
    first, second = here.submit(), here.submit()
    assert here("runs", "postpone", first, second, "--until", "10m").lines == [
        f"{first}  postponed",
        f"{second}  postponed",
    ]
    assert "postponed until" in here("runs", "why", first).out
    assert here.refused("runs", "postpone", first, code=2)


def test_one_refusal_does_not_keep_the_others(here: Inside) -> None:
    run_id = here.submit()
    answer = here("runs", "cancel", NOBODY, run_id)
    assert answer.code == 6
    assert answer.lines == [f"{run_id}  CANCELLED"]
    assert "no run has the id" in answer.err
    assert here.refused("runs", "retry", here.submit(), code=8)


def test_a_run_that_ended_is_told_in_every_way(cli: Cli, here: Inside) -> None:
    run_id = here.submit("-p", "seconds=0", "-p", "steps=2")
    failing = here.submit("-p", "seconds=0", "-p", "fail_times=1", "-p", "fatal=true")
    cli.work()
    assert here.ok("runs", "result", run_id).json["inputs"] == {"seconds": 0, "steps": 2}
    waited = here("runs", "wait", run_id, "--json")
    assert (waited.code, waited.json["status"]) == (0, "SUCCEEDED")
    (attempt,) = here.ok("runs", "attempts", run_id, "--json").json["items"]
    assert (attempt["number"], attempt["status"], attempt["executor"]) == (1, "SUCCEEDED", "process")
    events = here.ok("runs", "events", run_id, "--json").json["items"]
    assert [(event["type"], event["to"]) for event in events] == [
        ("SUBMITTED", "PENDING"),
        ("CLAIMED", "RUNNING"),
        ("SUCCEEDED", "SUCCEEDED"),
    ]
    assert here("runs", "cancel", run_id).code == 8
    assert here("runs", "wait", failing).code == 3
    assert "simulated failure" in here.refused("runs", "result", failing, code=3)
    assert "Traceback" in here.ok("runs", "attempts", failing, "--traceback").out
    assert f"holdfast runs attempts {failing} --traceback" in here.ok("runs", "show", failing).err


def test_a_worker_is_shown_by_name_and_times_in_one_way(cli: Cli, here: Inside) -> None:
    later = here.submit("--run-after", "1h")
    (reason,) = [one for one in here.ok("runs", "why", later, "--json").json["items"] if one["code"] == "scheduled"]
    assert re.search(r" at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$", reason["detail"])
    assert reason["detail"] in here.ok("runs", "why", later).out
    run_id = here.submit("-p", "seconds=60")
    worker = cli.start("worker", "--slots", "1", "--name", "anna")
    try:
        waiting = cli.start("runs", "wait", run_id)
        assert waiting.stderr is not None
        assert any("RUNNING" in line for line in waiting.stderr)
        owner = here.ok("runs", "show", run_id, "--json").json["lease_owner"]
        assert f"anna ({owner})" in here.ok("runs", "show", run_id).out
        assert f"worker anna ({owner}), lease until" in here.ok("runs", "why", run_id).out
        here.ok("runs", "cancel", run_id)
        waiting.communicate(timeout=60)
        assert f"anna ({owner})" in here.ok("runs", "attempts", run_id).out
    finally:
        finish(worker)


def test_two_runs_are_compared_by_pointer(here: Inside) -> None:
    one = here.submit("-p", "seconds=0", "-p", 'payload={"a": [1, 2]}', "--queue", "q")
    two = here.submit("-p", "seconds=0", "-p", 'payload={"a": [1, 3], "b": null}')
    found = {item["pointer"]: item for item in here.ok("runs", "diff", one, two, "--json").json["items"]}
    assert found["/queue"] == {"pointer": "/queue", "a": "q", "b": "default"}
    assert found["/parameters/payload/a/1"] == {"pointer": "/parameters/payload/a/1", "a": 2, "b": 3}
    assert found["/parameters/payload/b"] == {"pointer": "/parameters/payload/b", "b": None}
    assert not any(pointer.startswith("/result") for pointer in found)
    here.work()
    compared = here.ok("runs", "diff", one, two, "--json").json["items"]
    assert "/result/metrics/objective" in {item["pointer"] for item in compared}
    same = here.ok("runs", "diff", one, one)
    assert (same.out, same.err) == ("", "no difference\n")


def test_a_record_that_was_tampered_with_is_found(here: Inside, database_url: str) -> None:
    large = here.submit("-p", "seconds=0", "-p", "payload=" + "x" * 70_000)
    small = here.submit("-p", "seconds=0")
    here.work()
    verified = here.ok("runs", "verify", large, "--json").json
    assert verified["verified"] is True
    assert {check["name"] for check in verified["items"]} == {
        "payload hash",
        "events",
        "order",
        "times",
        "attempts",
        "success",
        "result",
    }
    stored = here.directory / "artifacts" / large / "1.json"
    stored.write_bytes(stored.read_bytes().replace(b"simulated", b"genuinely"))
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("alter table holdfast.runs disable trigger user")
        connection.execute("update holdfast.runs set parameters = '{\"seconds\": 9}' where id = %s", [small])
    damaged = here("runs", "verify", large, "--json")
    assert damaged.code == 1
    assert [check["name"] for check in damaged.json["items"] if not check["holds"]] == ["result"]
    changed = here("runs", "verify", small)
    assert changed.code == 1
    assert "payload hash" in next(line for line in changed.lines if line.startswith("fail"))


def test_a_wait_follows_a_run_that_another_process_executes(cli: Cli, here: Inside) -> None:
    run_id = here.submit("-p", "seconds=1", "-p", "steps=5")
    waiting = cli.start("runs", "wait", run_id, "--timeout", "50")
    worker = cli.start("worker", "--slots", "1")
    try:
        out, err = waiting.communicate(timeout=60)
    finally:
        finish(worker)
    assert waiting.returncode == 0, err
    assert out == f"{run_id}  SUCCEEDED\n"
    assert "RUNNING, attempt 1 of 3" in err


def test_a_wait_has_an_end(here: Inside) -> None:
    answer = here("runs", "wait", here.submit(), "--timeout", "0.2")
    assert (answer.code, answer.out) == (5, "")
    assert "had not ended after 0.2 s" in answer.err


LOGGING = """
from holdfast import current_run, task

@task("talk")
def talk(lines: int) -> None:
    for number in range(lines):
        current_run().log(f"line {number} \x1b[31m", level="warning" if number else "info")
"""


def test_a_run_s_log_is_read_and_followed(cli: Cli) -> None:
    (cli.directory / "talking.py").write_text(LOGGING)
    (cli.directory / "holdfast.toml").write_text('tasks = ["talking"]\n')
    run_id = cli.ok("submit", "talk", "-p", "lines=3").out.strip()
    assert cli.ok("runs", "logs", run_id).out == ""
    following = cli.start("runs", "logs", run_id, "--follow", "--json")
    cli.work()
    out, _ = following.communicate(timeout=60)
    assert following.returncode == 0
    told = [json.loads(line) for line in out.splitlines()]
    assert [line["message"] for line in told] == [f"line {number} \x1b[31m" for number in range(3)]
    assert cli.ok("runs", "logs", run_id, "--json").json["items"] == told
    plain = cli.ok("runs", "logs", run_id)
    assert [line.split()[1:4] for line in plain.lines] == [
        ["1", "info", "line"],
        ["1", "warning", "line"],
        ["1", "warning", "line"],
    ]
    assert "\x1b" not in plain.out
