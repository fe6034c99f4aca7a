"""Commands with closed standard streams work, or report that they need the closed stream."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli_support import SECONDS, Answer, Cli


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Cli:
    return Cli(tmp_path, database_url=database_url)


def run(cli: Cli, closed: str, *arguments: str) -> Answer:
    """Run a command with some streams closed, as a shell does with `>&-`."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "holdfast", *arguments],
        cwd=cli.directory,
        env=cli.environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def test_commands_do_their_work_with_all_streams_closed(cli: Cli) -> None:
    for arguments in (["submit", "mock"], ["worker", "--until-empty", "--slots", "1"], ["runs", "list"]):
        assert run(cli, "<&- >&- 2>&-", *arguments) == Answer(0, "", "")
    assert [item["status"] for item in cli.ok("runs", "list", "--json").json["items"]] == ["SUCCEEDED"]


@pytest.mark.parametrize("arguments", [["runs", "show", "x"], ["doctor"], ["config", "show"]])
def test_a_closed_stream_changes_neither_the_exit_code_nor_the_other_stream(cli: Cli, arguments: list[str]) -> None:
    usual = run(cli, "", *arguments)
    assert run(cli, ">&-", *arguments) == Answer(usual.code, "", usual.err)
    without_stderr = run(cli, "2>&-", *arguments)
    assert (without_stderr.code, without_stderr.err) == (usual.code, "")
    assert without_stderr.out.splitlines()[:2] == usual.out.splitlines()[:2]


def test_submit_that_needs_the_closed_stdin_says_so(cli: Cli) -> None:
    answer = run(cli, "<&-", "submit", "mock", "-f", "-")
    assert answer.code == 2
    assert "stdin is closed; name a file" in answer.err
