"""`holdfast up --executor ray_core`: starts its own Ray cluster on loopback, and stops it at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.processes.family import family, wait_gone
from tests.ray.head import ROOT, outer_environment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

SECONDS = 120.0


def test_up_starts_a_ray_that_executes_runs_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {name: value for name, value in outer_environment().items() if not name.startswith("RAY_")}
    environment["PYTHONPATH"] = str(ROOT)

    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "holdfast", *arguments]

    up = subprocess.Popen(
        command("up", "--executor", "ray_core", "--slots", "1", "--no-api"),
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        process_group=0,
    )
    assert up.stderr is not None
    said = ""
    try:
        while "Ctrl-C" not in said:
            line = up.stderr.readline()
            assert line, said
            said += line
        assert "on this machine only" in said
        submitted = subprocess.run(
            command("submit", "mock", "-p", "seconds=0.1", "--wait", "--timeout", "300"),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert submitted.returncode == 0, submitted.stderr
        members = family(up.pid)
    finally:
        os.kill(up.pid, signal.SIGINT)
        said += up.stderr.read()
        code = up.wait(SECONDS)
        up.stderr.close()
    assert code == 0, said
    assert wait_gone(members, SECONDS) == []
