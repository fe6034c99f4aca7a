"""holdfast runs: reading, waiting, controlling, comparing and verifying."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psycopg
import pytest

from holdfast.cli import output
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


def test_runs_are_listed_newest_first_in_pages(shell: InProcessShell) -> None:
    ids = [shell.submit("-p", f"steps={number}") for number in range(1, 6)]
    first = shell.ok("runs", "list", "--limit", "2", "--json").json
    assert [run["run_id"] for run in first["items"]] == [ids[4], ids[3]]
    second = shell.ok("runs", "list", "--limit", "3", "--cursor", first["next_cursor"], "--json").json
    assert [run["run_id"] for run in second["items"]] == [ids[2], ids[1], ids[0]]
    assert shell.ok("runs", "list", "--cursor", ids[0], "--json").json == {"items": [], "next_cursor": None}


def test_lists_fit_80_columns_and_show_ids_that_can_be_typed(
    shell: InProcessShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = ("-p", "fail_times=1", "-p", "fatal=true", "-p", "seconds=0")
    run_id = shell.submit(*parameters, "--queue", "a-queue-with-a-long-name")
    shell.work("--name", "a worker with a rather long name")
    shell.ok("runs", "cancel", shell.submit(), "--reason", "because " * 40)
    monkeypatch.setattr(output, "is_terminal", lambda stream=None: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (("runs", "attempts", run_id), ("runs", "events", run_id), ("workers", "list", "--all")):
        lines = shell.ok(*arguments).lines
        assert len(lines) > 1
        assert max(map(len, lines)) <= 80, lines
    titles, _, failed = shell.ok("runs", "list").lines
    assert max(len(titles), len(failed)) <= 80
    assert titles.split() == ["RUN", "TASK", "STATUS", "QUEUE", "ATTEMPTS", "CREATED", "REMARK"]
    shortened, *_ = failed.split()
    assert shortened == run_id[:18]
    assert shell.ok("runs", "show", shortened, "--json").json["run_id"] == run_id
    monkeypatch.setenv("COLUMNS", "300")
    wide = shell.ok("runs", "list").out
    assert run_id in wide
    assert "a-queue-with-a-long-name" in wide


def test_table_without_a_terminal_is_plain_and_not_truncated(shell: InProcessShell) -> None:
    run_id = shell.submit("--queue", "a-queue-with-" + "x" * 200)
    answer = shell.ok("runs", "list")
    header, row = answer.lines
    assert header.split() == ["RUN", "TASK", "STATUS", "QUEUE", "ATTEMPTS", "CREATED", "FINISHED", "REMARK"]
    assert row.split()[:5] == [run_id, "mock", "PENDING", "a-queue-with-" + "x" * 200, "0/3"]
    assert row.split()[5].endswith("Z")
    assert "\x1b" not in answer.out


def test_filters_narrow_the_list(shell: InProcessShell) -> None:
    tagged = shell.submit("--tag", "blue", "--queue", "q")
    cancelled = shell.submit()
    shell.ok("runs", "cancel", cancelled)

    def found(*filters: str) -> list[str]:
        return [run["run_id"] for run in shell.ok("runs", "list", "--json", *filters).json["items"]]

    assert found("--tag", "blue") == found("--queue", "q") == found("--status", "pending") == [tagged]
    assert found("--status", "CANCELLED") == [cancelled]
    assert found("--task", "mock") == found("--model", "mock") == [cancelled, tagged]
    assert found("--task", "other") == found("--status", "RUNNING") == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
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
def test_unknown_ids_and_invalid_arguments_have_their_exit_codes(
    shell: InProcessShell, arguments: list[str], code: int, message: str
) -> None:
    assert message in shell.refused("runs", *arguments, code=code)


def test_run_is_shown_as_text_and_as_json(shell: InProcessShell) -> None:
    run_id = shell.submit("-p", 'payload={"a": 1}', "--tag", "t")
    run = shell.ok("runs", "show", run_id, "--json").json
    assert run["run_id"] == run_id
    assert run["links"]["result"] == f"/runs/{run_id}/result"
    lines = dict(line.split(None, 1) for line in shell.ok("runs", "show", run_id).lines)
    assert lines["status"] == "PENDING"
    assert lines["parameters"] == '{"payload":{"a":1}}'
    assert lines["tags"] == "t"


def test_why_explains_a_pending_run(shell: InProcessShell) -> None:
    shell.ok("queues", "pause", "default", "--reason", "maintenance")
    run_id = shell.submit()
    reasons = shell.ok("runs", "why", run_id, "--json").json["items"]
    assert [reason["code"] for reason in reasons] == ["paused", "no-worker"]
    assert "maintenance" in reasons[0]["detail"]
    assert "no worker is alive" in shell.ok("runs", "why", run_id).out


def test_result_of_an_unfinished_run_is_a_conflict(shell: InProcessShell) -> None:
    assert "it has no result yet" in shell.refused("runs", "result", shell.submit(), code=8)


def test_runs_are_cancelled_and_reopened_together(shell: InProcessShell) -> None:
    ids = [shell.submit() for _ in range(2)]
    assert shell.ok("runs", "cancel", *ids, "--reason", "enough").lines == [f"{one}  CANCELLED" for one in ids]
    assert "enough" in shell.refused("runs", "result", ids[0], code=4)
    assert shell("runs", "wait", ids[0]).code == 4
    assert [line.split()[1] for line in shell.ok("runs", "retry", *ids).lines] == ["PENDING", "PENDING"]
    types = [event["type"] for event in shell.ok("runs", "events", ids[0], "--json").json["items"]]
    assert types == ["SUBMITTED", "CANCELLED", "REOPENED"]


def test_runs_are_postponed_together(shell: InProcessShell) -> None:
    first, second = shell.submit(), shell.submit()
    assert shell("runs", "postpone", first, second, "--until", "10m").lines == [
        f"{first}  postponed",
        f"{second}  postponed",
    ]
    assert "postponed until" in shell("runs", "why", first).out
    assert shell.refused("runs", "postpone", first, code=2)


def test_one_rejected_run_does_not_affect_the_others(shell: InProcessShell) -> None:
    run_id = shell.submit()
    answer = shell("runs", "cancel", NOBODY, run_id)
    assert answer.code == 6
    assert answer.lines == [f"{run_id}  CANCELLED"]
    assert "no run has the id" in answer.err
    assert shell.refused("runs", "retry", shell.submit(), code=8)


def test_ended_run_is_shown_by_every_command(cli: Cli, shell: InProcessShell) -> None:
    run_id = shell.submit("-p", "seconds=0", "-p", "steps=2")
    failing = shell.submit("-p", "seconds=0", "-p", "fail_times=1", "-p", "fatal=true")
    cli.work()
    assert shell.ok("runs", "result", run_id).json["inputs"] == {"seconds": 0, "steps": 2}
    waited = shell("runs", "wait", run_id, "--json")
    assert (waited.code, waited.json["status"]) == (0, "SUCCEEDED")
    (attempt,) = shell.ok("runs", "attempts", run_id, "--json").json["items"]
    assert (attempt["number"], attempt["status"], attempt["executor"]) == (1, "SUCCEEDED", "process")
    events = shell.ok("runs", "events", run_id, "--json").json["items"]
    assert [(event["type"], event["to"]) for event in events] == [
        ("SUBMITTED", "PENDING"),
        ("CLAIMED", "RUNNING"),
        ("SUCCEEDED", "SUCCEEDED"),
    ]
    assert shell("runs", "cancel", run_id).code == 8
    assert shell("runs", "wait", failing).code == 3
    assert "simulated failure" in shell.refused("runs", "result", failing, code=3)
    assert "Traceback" in shell.ok("runs", "attempts", failing, "--traceback").out
    assert f"holdfast runs attempts {failing} --traceback" in shell.ok("runs", "show", failing).err


def test_worker_is_shown_by_name_and_all_times_have_one_format(cli: Cli, shell: InProcessShell) -> None:
    later = shell.submit("--run-after", "1h")
    (reason,) = [one for one in shell.ok("runs", "why", later, "--json").json["items"] if one["code"] == "scheduled"]
    assert re.search(r" at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$", reason["detail"])
    assert reason["detail"] in shell.ok("runs", "why", later).out
    run_id = shell.submit("-p", "seconds=60")
    worker = cli.start("worker", "--slots", "1", "--name", "anna")
    try:
        waiting = cli.start("runs", "wait", run_id)
        assert waiting.stderr is not None
        assert any("RUNNING" in line for line in waiting.stderr)
        owner = shell.ok("runs", "show", run_id, "--json").json["lease_owner"]
        assert f"anna ({owner})" in shell.ok("runs", "show", run_id).out
        assert f"worker anna ({owner}), lease until" in shell.ok("runs", "why", run_id).out
        shell.ok("runs", "cancel", run_id)
        waiting.communicate(timeout=60)
        assert f"anna ({owner})" in shell.ok("runs", "attempts", run_id).out
    finally:
        finish(worker)


def test_two_runs_are_compared_by_pointer(shell: InProcessShell) -> None:
    one = shell.submit("-p", "seconds=0", "-p", 'payload={"a": [1, 2]}', "--queue", "q")
    two = shell.submit("-p", "seconds=0", "-p", 'payload={"a": [1, 3], "b": null}')
    found = {item["pointer"]: item for item in shell.ok("runs", "diff", one, two, "--json").json["items"]}
    assert found["/queue"] == {"pointer": "/queue", "a": "q", "b": "default"}
    assert found["/parameters/payload/a/1"] == {"pointer": "/parameters/payload/a/1", "a": 2, "b": 3}
    assert found["/parameters/payload/b"] == {"pointer": "/parameters/payload/b", "b": None}
    assert not any(pointer.startswith("/result") for pointer in found)
    shell.work()
    compared = shell.ok("runs", "diff", one, two, "--json").json["items"]
    assert "/result/metrics/objective" in {item["pointer"] for item in compared}
    same = shell.ok("runs", "diff", one, one)
    assert (same.out, same.err) == ("", "no difference\n")


def test_verify_detects_a_changed_record(shell: InProcessShell, database_url: str) -> None:
    large = shell.submit("-p", "seconds=0", "-p", "payload=" + "x" * 70_000)
    small = shell.submit("-p", "seconds=0")
    shell.work()
    verified = shell.ok("runs", "verify", large, "--json").json
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
    stored = shell.directory / "artifacts" / large / "1.json"
    stored.write_bytes(stored.read_bytes().replace(b"simulated", b"genuinely"))
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("alter table holdfast.runs disable trigger user")
        connection.execute("update holdfast.runs set parameters = '{\"seconds\": 9}' where id = %s", [small])
    damaged = shell("runs", "verify", large, "--json")
    assert damaged.code == 1
    assert [check["name"] for check in damaged.json["items"] if not check["holds"]] == ["result"]
    changed = shell("runs", "verify", small)
    assert changed.code == 1
    assert "payload hash" in next(line for line in changed.lines if line.startswith("fail"))


def test_a_wait_follows_a_run_that_another_process_executes(cli: Cli, shell: InProcessShell) -> None:
    run_id = shell.submit("-p", "seconds=1", "-p", "steps=5")
    waiting = cli.start("runs", "wait", run_id, "--timeout", "50")
    worker = cli.start("worker", "--slots", "1")
    try:
        out, err = waiting.communicate(timeout=60)
    finally:
        finish(worker)
    assert waiting.returncode == 0, err
    assert out == f"{run_id}  SUCCEEDED\n"
    assert "RUNNING, attempt 1 of 3" in err


def test_wait_ends_after_its_timeout(shell: InProcessShell) -> None:
    answer = shell("runs", "wait", shell.submit(), "--timeout", "0.2")
    assert (answer.code, answer.out) == (5, "")
    assert "had not ended after 0.2 s" in answer.err


LOGGING = """
from holdfast import current_run, task

@task("talk")
def talk(lines: int) -> None:
    for number in range(lines):
        current_run().log(f"line {number} \x1b[31m", level="warning" if number else "info")
"""


def test_log_of_a_run_can_be_read_and_followed(cli: Cli) -> None:
    (cli.directory / "talking.py").write_text(LOGGING)
    (cli.directory / "holdfast.toml").write_text('tasks = ["talking"]\n')
    run_id = cli.ok("submit", "talk", "-p", "lines=3").out.strip()
    assert cli.ok("runs", "logs", run_id).out == ""
    following = cli.start("runs", "logs", run_id, "--follow", "--json")
    cli.work()
    out, _ = following.communicate(timeout=60)
    assert following.returncode == 0
    message = [json.loads(line) for line in out.splitlines()]
    assert [line["message"] for line in message] == [f"line {number} \x1b[31m" for number in range(3)]
    assert cli.ok("runs", "logs", run_id, "--json").json["items"] == message
    plain = cli.ok("runs", "logs", run_id)
    assert [line.split()[1:4] for line in plain.lines] == [
        ["1", "info", "line"],
        ["1", "warning", "line"],
        ["1", "warning", "line"],
    ]
    assert "\x1b" not in plain.out
