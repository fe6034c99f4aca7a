"""holdfast jobs: every command, over the database and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Client, Settings
from holdfast.jobs import Job, Jobs
from tests.databases import Databases
from tests.http.conftest import ReusableServer
from tests.integration.cli_support import InProcessShell

NOBODY = "00000000-0000-7000-8000-000000000000"
QUICK = {"seconds": 0, "steps": 1}
LOAD = {"entrypoint": "mock", "kwargs": QUICK, "key": "load"}
BROKEN = {"entrypoint": "mock", "kwargs": QUICK | {"fail_times": 1, "fatal": True}, "key": "check"}


@pytest.fixture(scope="module")
def module_server(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReusableServer]:
    kept = ReusableServer(databases, tmp_path_factory.mktemp("server"))
    yield kept
    kept.close()


@pytest.fixture(params=["database", "api"])
def settings(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The settings of commands: a database, or an API and its database."""
    if request.param == "database":
        yield {"database_url": request.getfixturevalue("database_url")}
        return
    kept: ReusableServer = request.getfixturevalue("module_server")
    yield {"database_url": kept.settings.database_url or "", "url": kept.server.url}
    kept.clear()


@pytest.fixture
def shell(
    settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InProcessShell:
    return InProcessShell(tmp_path, settings, monkeypatch, capsys)


@pytest.fixture
def jobs(settings: dict[str, str]) -> Iterator[Jobs]:
    with Client(Settings(database_url=settings["database_url"])) as client:
        yield Jobs(client)


def waiting_for(key: str) -> dict[str, Any]:
    return {"entrypoint": "mock", "kwargs": QUICK, "key": f"after {key}", "depends_on": [key]}


def listed(shell: InProcessShell, *filters: str) -> list[str]:
    return [job["job_id"] for job in shell.ok("jobs", "list", "--json", *filters).json["items"]]


def shown(shell: InProcessShell, job: Job) -> dict[str, Any]:
    found: dict[str, Any] = shell.ok("jobs", "show", job.id, "--json").json
    return found


def test_jobs_are_listed_newest_first_in_pages(shell: InProcessShell, jobs: Jobs) -> None:
    made = [jobs.create_job(f"job {number}", [LOAD]).id for number in range(3)]
    assert listed(shell) == made[::-1]
    page = shell.ok("jobs", "list", "--limit", "2", "--json").json
    assert page["next_cursor"] == made[1]
    assert listed(shell, "--cursor", made[1]) == [made[0]]
    assert listed(shell, "--name", "job 1") == [made[1]]
    message = shell.ok("jobs", "list", "--limit", "2").err
    assert f"for more, add --cursor {made[1]}" in message


def test_status_filter_accepts_any_case_and_the_name_completed(shell: InProcessShell, jobs: Jobs) -> None:
    done = jobs.create_job("done", [LOAD])
    shell.work()
    open_ = jobs.create_job("open", [LOAD])
    assert listed(shell, "--status", "pending") == [open_.id]
    assert listed(shell, "--status", "SUCCEEDED") == listed(shell, "--status", "completed") == [done.id]
    assert listed(shell, "--status", "FAILED") == []


def test_table_shows_the_progress_of_a_job(shell: InProcessShell, jobs: Jobs) -> None:
    job = jobs.create_job("nightly", [LOAD, BROKEN, waiting_for("check")])
    shell.work()
    header, row = shell.ok("jobs", "list").lines
    assert header.split() == ["JOB", "NAME", "STATUS", "DONE", "FAILED", "AGE"]
    assert row.split()[:5] == [job.id, "nightly", "FAILED", "1/3", "1"]


def test_show_says_what_each_task_is_waiting_for(shell: InProcessShell, jobs: Jobs) -> None:
    job = jobs.create_job("nightly", [LOAD, waiting_for("load")])
    first, second = shown(shell, job)["tasks"]
    assert [reason["code"] for reason in first["waits_for"]] == ["no-worker"]
    assert second["waits_for"][0]["code"] == "dependencies"
    assert f"{first['run_id']} (mock, PENDING)" in second["waits_for"][0]["detail"]
    table = shell.ok("jobs", "show", job.id).out
    assert "done          0 of 2" in table
    assert "no worker is alive" in table
    shell.work()
    assert [task["waits_for"] for task in shown(shell, job)["tasks"]] == [[], []]


def test_show_says_how_tasks_ended(shell: InProcessShell, jobs: Jobs) -> None:
    job = jobs.create_job("nightly", [LOAD, BROKEN, waiting_for("check")])
    shell.work()
    found = shown(shell, job)
    assert (found["status"], found["completed_tasks"], found["failed_tasks"]) == ("FAILED", 1, 1)
    assert [task["status"] for task in found["tasks"]] == ["SUCCEEDED", "FAILED", "CANCELLED"]
    table = shell.ok("jobs", "show", job.id).out
    assert "simulated failure" in table
    assert "unreachable" in table


def test_show_lists_at_most_fifty_tasks_by_default(shell: InProcessShell, jobs: Jobs) -> None:
    job = jobs.create_job("wide", [{"entrypoint": "mock", "kwargs": QUICK}] * 60)
    assert len(shown(shell, job)["tasks"]) == 50
    assert "showing 50 of 60 tasks; use --all to show all of them" in shell.ok("jobs", "show", job.id).err
    whole = shell.ok("jobs", "show", job.id, "--all", "--json").json["tasks"]
    assert [task["run_id"] for task in whole] == [task.id for task in job.tasks]
    assert "--all" not in shell.ok("jobs", "show", job.id, "--all").err


def test_a_job_is_cancelled_with_a_reason(shell: InProcessShell, jobs: Jobs) -> None:
    job = jobs.create_job("too long", [LOAD, waiting_for("load")])
    assert shell.ok("jobs", "cancel", job.id, "--reason", "not needed").out == f"{job.id}  CANCELLED\n"
    found = shown(shell, job)
    assert (found["status"], found["reason"], found["cancelled_tasks"]) == ("CANCELLED", "not needed", 2)
    assert shell.ok("jobs", "cancel", job.id, "--json").json["status"] == "CANCELLED"


def test_a_job_is_found_by_a_prefix_of_its_id(shell: InProcessShell, jobs: Jobs) -> None:
    job = jobs.create_job("nightly", [LOAD])
    beginning = job.id[:20]
    assert shell.ok("jobs", "show", beginning, "--json").json["job_id"] == job.id
    assert job.id in shell.ok("jobs", "cancel", beginning).out
    assert str(jobs.get_job(job).status) == "CANCELLED"


def test_retry_runs_failed_tasks_again(shell: InProcessShell, jobs: Jobs) -> None:
    job = jobs.create_job("nightly", [LOAD, BROKEN, waiting_for("check")])
    shell.work()
    assert shell.ok("jobs", "retry", job.id).out.split() == [job.id, "RUNNING", "2", "tasks", "reopened"]
    shell.work()
    assert shown(shell, job)["status"] == "SUCCEEDED"
    assert "there is nothing to retry" in shell.refused("jobs", "retry", job.id, code=8)
    assert "already ended SUCCEEDED" in shell.refused("jobs", "cancel", job.id, code=8)


def test_one_rejected_job_does_not_affect_the_others(shell: InProcessShell, jobs: Jobs) -> None:
    job = jobs.create_job("nightly", [LOAD])
    answer = shell("jobs", "cancel", NOBODY, job.id)
    assert (answer.code, answer.out) == (6, f"{job.id}  CANCELLED\n")
    assert shell.ok("jobs", "retry", job.id, "--json").json["reopened"] == 1


def test_unknown_jobs_and_invalid_arguments_have_their_exit_codes(shell: InProcessShell) -> None:
    for arguments, code, message in (
        (["show", "not-an-id"], 6, "'not-an-id' is not the id of a job"),
        (["show", NOBODY], 6, f"no job has the id {NOBODY}"),
        (["cancel", NOBODY], 6, NOBODY),
        (["retry", NOBODY], 6, NOBODY),
        (["list", "--status", "LOST"], 2, "'LOST' is not one of"),
        (["list", "--limit", "0"], 2, "not in the range"),
        (["list", "--cursor", "x"], 6, "'x' is not the id of a job"),
    ):
        assert message in shell.refused("jobs", *arguments, code=code)


def test_control_characters_in_names_are_not_printed(shell: InProcessShell, jobs: Jobs) -> None:
    job = jobs.create_job("\x1b[2J", [LOAD], description="\x1b]0;owned\x07")
    for arguments in (["list"], ["show", job.id]):
        assert "\x1b" not in shell.ok("jobs", *arguments).out
