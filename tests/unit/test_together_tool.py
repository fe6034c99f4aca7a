"""`make test` runs the tests of Ray and all others at the same time, and fails if either part fails."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "together"
# Each command creates a file and waits for the other's; then it may be interrupted.
MEETING = """
import pathlib, signal, time

signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})
pathlib.Path({mine!r}).touch()
while not pathlib.Path({other!r}).exists():
    time.sleep(0.01)
print("met", flush=True)
"""
INTERRUPTED = MEETING + "signal.sigwait({{signal.SIGINT}})\nprint('cleaned up')"


def command(first: str, second: str) -> list[str]:
    return [sys.executable, str(TOOL), sys.executable, "-c", first, "--", sys.executable, "-c", second]


def both(script: str, directory: Path) -> list[str]:
    one, two = str(directory / "one"), str(directory / "two")
    return command(script.format(mine=one, other=two), script.format(mine=two, other=one))


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("print('first')", "print('second')", 0),
        ("print('first'); exit(3)", "print('second')", 3),
        ("print('first')", "print('second'); exit(2)", 2),
        ("print('first'); exit(3)", "print('second'); exit(2)", 2),
        ("print('first'); exit(5)", "print('second')", 0),
        ("print('first')", "print('second'); exit(5)", 0),
        ("print('first'); exit(5)", "print('second'); exit(5)", 5),
        ("print('first'); exit(5)", "print('second'); exit(1)", 1),
        ("print('first'); exit(1)", "print('second'); exit(5)", 1),
        ("print('first')", "import os; print('second', flush=True); os.kill(os.getpid(), 9)", 137),
    ],
)
def test_output_of_both_commands_is_shown_and_one_failure_fails(first: str, second: str, code: int) -> None:
    ended = subprocess.run(command(first, second), capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (code, "second\nfirst\n")


def test_commands_run_at_the_same_time(tmp_path: Path) -> None:
    assert subprocess.check_output(both(MEETING, tmp_path), text=True, timeout=60) == "met\nmet\n"


def test_both_commands_clean_up_when_the_tool_is_ended(tmp_path: Path) -> None:
    with subprocess.Popen(both(INTERRUPTED, tmp_path), stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == "met\n"
        tool.terminate()
        rest = tool.stdout.read()
    assert tool.returncode == 128 + signal.SIGTERM
    assert rest == "cleaned up\nmet\ncleaned up\n"
