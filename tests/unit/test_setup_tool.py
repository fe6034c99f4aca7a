"""`make setup` shows its progress on a terminal only."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Prints what pip prints, and installs packages; each step waits until the test has seen the one before.
PIP = """
import pathlib, sys, time

def seen(step):
    while not pathlib.Path(sys.argv[1], step).exists():
        time.sleep(0.01)

packages = pathlib.Path(sys.argv[1], "lib", "python3", "site-packages")
packages.mkdir(parents=True)
print("Looking in links: /wheels")
print("Ignoring colorama: markers do not match")
print("Collecting a-package==1.0 (from -r requirements.txt (line 1))", flush=True)
seen("first")
print("Processing /wheels/other-2.0-py3-none-any.whl (from -r requirements.txt (line 2))", flush=True)
print("WARNING: something that does not matter", file=sys.stderr, flush=True)
seen("second")
print("Installing collected packages: a-package, other", flush=True)
(packages / "other-2.0.dist-info").mkdir()
seen("third")
sys.exit(int(sys.argv[2]))
"""

FOLLOW = """
import importlib.util, pathlib, subprocess, sys

path, venv, pip, code = sys.argv[1:]
spec = importlib.util.spec_from_file_location("setup_tool", path)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
tool.Progress.EVERY = 0.01
try:
    tool.Progress(pathlib.Path(venv), 3).follow([sys.executable, "-c", pip, venv, code])
except subprocess.CalledProcessError as error:
    sys.exit(error.returncode)
"""

STEPS = {
    "first": "2 of 3 collected, a-package",
    "second": "3 of 3 collected, other",
    "third": "1 of 2 installed",
}


def command(venv: Path, code: int = 0) -> list[str]:
    return [sys.executable, "-c", FOLLOW, str(ROOT / "tools" / "setup.py"), str(venv), PIP, str(code)]


def test_terminal_shows_what_is_collected_and_installed(tmp_path: Path) -> None:
    screen, inside = pty.openpty()
    process = subprocess.Popen(command(tmp_path), stderr=inside, stdout=subprocess.DEVNULL)
    os.close(inside)
    shown = ""
    for step, expected in STEPS.items():
        while expected not in shown:
            shown += os.read(screen, 4096).decode()
        (tmp_path / step).touch()
    with contextlib.suppress(OSError):  # raised by a terminal when its last writer is gone
        while data := os.read(screen, 4096):
            shown += data.decode()
    os.close(screen)
    assert process.wait() == 0
    assert "does not matter" not in shown
    assert "\n" not in shown, "one line is redrawn"
    assert shown.endswith("\r\x1b[K"), "and is gone at the end"


def quietly(venv: Path, code: int) -> subprocess.CompletedProcess[str]:
    for step in STEPS:
        (venv / step).touch()
    return subprocess.run(command(venv, code), capture_output=True, text=True)


def test_no_progress_is_written_without_a_terminal(tmp_path: Path) -> None:
    done = quietly(tmp_path, 0)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_failure_shows_the_last_output_of_pip(tmp_path: Path) -> None:
    done = quietly(tmp_path, 3)
    assert done.returncode == 3
    assert "Processing /wheels/other-2.0" in done.stderr
    assert "does not matter" in done.stderr
