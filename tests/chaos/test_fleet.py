"""The faults of the fleet work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.processes.family import family, wait_gone
from tests.chaos import fleet
from tests.chaos.fleet import Fleet, Member

# Starts a process for each line that it reads, and prints its id.
STARTS_PROCESSES = """
import subprocess, sys
for _ in sys.stdin:
    print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
"""


def test_process_that_starts_while_its_tree_is_killed_is_killed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def slow_family(pid: int) -> list[int]:
        members = family(pid)
        if not started:
            parent.stdin.write("one\n")
            started.append(int(parent.stdout.readline()))
        return members

    parent = subprocess.Popen(
        [sys.executable, "-uc", STARTS_PROCESSES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    member = Member("0", "direct", "", "", process=parent)
    crew = Fleet(tmp_path, [member], lease=3.0)
    monkeypatch.setattr(crew, "start", lambda member: None)
    monkeypatch.setattr(fleet, "family", slow_family)
    with parent:
        crew.kill_tree(member)
    left = wait_gone(started, 5.0)
    crew._kill(left)
    assert started
    assert not left
