"""Ids on the command line may be shortened to a prefix that only one run, job or worker has."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest

from holdfast import Client
from holdfast.cli import values
from holdfast.domain.errors import BadInput, RunNotFound
from holdfast.jobs.facades import Jobs
from holdfast.ops import submit
from holdfast.runtime.settings import Settings
from holdfast.verbs.submissions import prepare
from tests.integration.cli_support import InProcessShell

COMMANDS = (
    ("runs", "show", "--json"),
    ("runs", "events"),
    ("runs", "attempts"),
    ("runs", "why"),
    ("runs", "logs"),
    ("runs", "verify"),
    ("runs", "cancel"),
    ("runs", "wait", "--json"),
    ("runs", "retry"),
)


@pytest.fixture
def shell(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InProcessShell:
    return InProcessShell(tmp_path, {"database_url": database_url}, monkeypatch, capsys)


def made_as(database_url: str, *ids: str) -> None:
    """Create runs with these ids."""
    settings = Settings(database_url=database_url, doorbell="poll")
    with Client(settings) as client:
        for id_ in ids:
            new = prepare(settings, "mock", {"seconds": 0}, id=id_)
            client.perform(lambda new=new: submit(new))


def test_every_command_accepts_a_unique_prefix_of_a_run_id(shell: InProcessShell) -> None:
    run_id = shell.submit()
    for group, verb, *options in COMMANDS:
        answer = shell(group, verb, run_id[:18].upper(), *options)
        assert answer.code in (0, 4), answer
        if answer.out and verb in ("show", "wait"):
            assert answer.json["run_id"] == run_id
    assert shell("runs", "result", run_id[:18]).code == 8
    assert shell.ok("runs", "diff", run_id[:18], run_id.replace("-", "")[:20]).out == ""


ONE, TWO = "01900000-0000-7000-8000-00000000000a", "01900000-0000-7000-8000-00000000000b"


def test_an_ambiguous_prefix_is_refused_with_the_candidates(database_url: str, shell: InProcessShell) -> None:
    made_as(database_url, ONE, TWO, "01900000-0001-7000-8000-00000000000a")
    said = shell.refused("runs", "show", ONE[:-1], code=2)
    assert said == (
        f"{ONE[:-1]} matches more than one run: {TWO} (mock, PENDING), {ONE} (mock, PENDING); use a longer prefix"
    )
    assert shell.ok("runs", "show", "0190-0000-0001-7", "--json").json["run_id"][9:13] == "0001"
    assert shell.ok("runs", "show", ONE, "--json").json["run_id"] == ONE


def test_only_a_few_of_many_candidates_are_named(database_url: str, shell: InProcessShell) -> None:
    made_as(database_url, *(str(UUID(int=UUID(ONE).int + number)) for number in range(12)))
    said = shell.refused("runs", "cancel", "0190", code=2)
    assert len(re.findall("PENDING", said)) == values.CANDIDATES_SHOWN
    assert said.endswith(" and more; use a longer prefix")


@pytest.mark.parametrize("given", ["beef", "0190", "01900000-0000-7000-8000-00000000000"])
def test_a_prefix_of_no_run_is_not_found(shell: InProcessShell, given: str) -> None:
    shell.submit()
    assert shell.refused("runs", "show", given, code=6).startswith(f"no run id begins with {given};")


@pytest.mark.parametrize("given", ["abc", "nonsense", "0190 0000", ONE + "0"])
def test_text_that_cannot_be_part_of_an_id_is_not_treated_as_a_prefix(shell: InProcessShell, given: str) -> None:
    assert shell.refused("runs", "show", given, code=6) == f"{given!r} is not the id of a run"


def test_a_short_page_does_not_make_a_prefix_unique() -> None:
    class Short:
        """Lists one run at a time although there are more, as the API may."""

        def list(self, cursor: str, limit: int) -> list[object]:
            run = type("Run", (), {"model": "mock", "status": "PENDING"})
            return [type("Found", (run,), {"id": one}) for one in (TWO, ONE) if one < cursor][:1]

    with pytest.raises(BadInput, match="more than one"):
        values.run_id(Short(), ONE[:-1])  # type: ignore[arg-type]
    with pytest.raises(RunNotFound):
        values.run_id(Short(), "beef")  # type: ignore[arg-type]


def test_jobs_and_workers_are_found_by_a_prefix_too(database_url: str, shell: InProcessShell) -> None:
    with Client(Settings(database_url=database_url, doorbell="poll")) as client:
        job = Jobs(client).create_job("one", [{"entrypoint": "mock", "kwargs": {"seconds": 0}}])
        assert values.job_id(client, job.id[:18]) == job.id
    listed = shell.ok("runs", "list", "--job", job.id[:18], "--json").json["items"]
    assert [run["job_id"] for run in listed] == [job.id]
    shell.work()
    (worker,) = shell.ok("workers", "list", "--all", "--json").json["items"]
    said = shell.refused("workers", "drain", worker["id"][:18], code=6)
    assert said.startswith(f"no live worker has the id {worker['id']};")
    assert "no worker id begins with beef" in shell.refused("workers", "drain", "beef", code=6)
