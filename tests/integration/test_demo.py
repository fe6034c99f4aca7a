"""holdfast demo: every check succeeds, and nothing is left behind, however it ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from holdfast.processes.family import family, wait_gone
from tests.integration.cli_support import Cli, finish

SECONDS = 60.0

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The user's own settings must not affect the demo."""
    (tmp_path / "holdfast.toml").write_text('doorbell = "poll"\nlease_seconds = 3000\n')
    return Cli(tmp_path, database_url="postgresql://127.0.0.1:1/nowhere", doorbell="poll")


def test_demo_succeeds_and_leaves_nothing_behind(cli: Cli) -> None:
    answer = cli("demo", seconds=220)
    assert answer.code == 0, answer
    assert answer.err == ""
    kept = [line.strip() for line in answer.lines if line.strip().startswith("✓ ")]
    assert f"{len(kept)} of {len(kept)} checks succeeded" in answer.out
    assert any("attempts: LOST, SUCCEEDED" in line for line in kept)
    assert any("FAILED, SUCCEEDED" in line for line in kept)
    assert any("15 of 15 runs of job" in line for line in kept)
    assert "was killed with kill -9" in answer.out
    assert "LOST       PENDING    attempt 1" in answer.out
    assert "\x1b" not in answer.out
    assert [path.name for path in cli.directory.iterdir()] == ["holdfast.toml"]


@pytest.mark.parametrize(
    ("number", "code", "after"),
    [
        (signal.SIGINT, 130, "separate PostgreSQL server"),
        (signal.SIGTERM, 143, "RUNNING"),
        (signal.SIGINT, 130, "end to end"),
    ],
)
def test_interrupted_demo_stops_everything_it_started(cli: Cli, number: int, code: int, after: str) -> None:
    process = cli.start("demo")
    assert process.stdout is not None
    while after not in (line := process.stdout.readline()):
        assert line, "it ended too soon"
    members = family(process.pid)
    assert finish(process, number).code == code
    assert wait_gone(members, SECONDS) == []
    assert [path.name for path in cli.directory.iterdir()] == ["holdfast.toml"]


def test_next_demo_removes_what_a_killed_demo_left(cli: Cli) -> None:
    process = cli.start("demo")
    assert process.stdout is not None
    while "two workers" not in (line := process.stdout.readline()):
        assert line, "it ended too soon"
    members = family(process.pid)
    process.kill()
    process.communicate()
    assert wait_gone(members, SECONDS) == [], "workers stop by themselves"
    above = cli.directory / ".holdfast"
    assert list(above.glob("demo-*"))
    following = cli.start("demo")
    assert following.stdout is not None
    while "separate PostgreSQL server" not in (line := following.stdout.readline()):
        assert line, "it ended too soon"
    assert len(list(above.glob("demo-*.lock"))) == 1
    assert finish(following).code == 143
    assert list(above.iterdir()) == []
