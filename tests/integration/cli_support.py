"""The real command, in a separate process or in the test's process, and its output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.running import invoke

SECONDS = 100
# Variables that a machine or a test run may have set: a command under test gets its settings only from the test.
FOREIGN = ("HOLDFAST_", "POSTGRES_", "WORKER_", "JOB_", "DATABASE_URL", "REDIS_URL", "NO_COLOR")


@dataclass(frozen=True)
class Answer:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Shell:
    """Runs commands, and checks their results."""

    directory: Path

    def __call__(self, *arguments: str, text: str | None = None, env: dict[str, str] | None = None) -> Answer:
        raise AssertionError("how a command is run is not said")

    def ok(self, *arguments: str, text: str | None = None) -> Answer:
        """Run a command that must succeed."""
        answer = self(*arguments, text=text)
        assert answer.code == 0, answer
        return answer

    def refused(self, *arguments: str, code: int, env: dict[str, str] | None = None) -> str:
        """Run a command that must fail with nothing on stdout. Return its one-line error."""
        answer = self(*arguments, env=env)
        assert answer.code == code, answer
        assert answer.out == "", answer
        assert "Traceback" not in answer.err
        message = [line for line in answer.err.splitlines() if line.startswith("holdfast: ")]
        assert len(message) == 1, answer
        return message[0].removeprefix("holdfast: ")

    def submit(self, *arguments: str) -> str:
        """Submit a run of the mock task. Return its id."""
        return self.ok("submit", "mock", *arguments).out.strip()

    def work(self, *arguments: str) -> Answer:
        """Run a worker until there are no more runs."""
        return self.ok("worker", "--until-empty", "--slots", "2", *arguments)


class InProcessShell(Shell):
    """Runs commands in the test's process, which takes a tenth of the time of a separate process."""

    def __init__(self, directory: Path, settings: dict[str, str], patch: pytest.MonkeyPatch, capture: Any) -> None:
        self.directory = directory
        self._capture = capture
        for name in os.environ:
            if name.startswith(FOREIGN):
                patch.delenv(name)
        for name, value in settings.items():
            patch.setenv("HOLDFAST_" + name.upper(), value)
        patch.chdir(directory)

    def __call__(self, *arguments: str, text: str | None = None, env: dict[str, str] | None = None) -> Answer:
        assert text is None, "only a separate process has a stdin"
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            code = invoke(arguments)
        out, err = self._capture.readouterr()
        return Answer(code, out, err)

    def work(self, *arguments: str) -> Answer:
        """Run a worker until there are no more runs, without child processes."""
        return super().work("--executor", "inline", *arguments)


class Cli(Shell):
    """Runs `holdfast` in a separate process, with its own settings and directory."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.settings = {"HOLDFAST_" + name.upper(): value for name, value in settings.items()}

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return kept | self.settings | more

    def start(self, *arguments: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start a command and return at once."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        # If the suite was started with `nohup`, commands would inherit that SIGHUP is ignored.
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "holdfast", *arguments],
                cwd=self.directory,
                env=self.environment(**(env or {})),
                text=True,
                encoding="utf-8",
                **given,
            )
        finally:
            signal.signal(signal.SIGHUP, before)

    def __call__(
        self, *arguments: str, text: str | None = None, env: dict[str, str] | None = None, seconds: float = SECONDS
    ) -> Answer:
        process = self.start(*arguments, env=env, stdin=subprocess.PIPE)
        try:
            out, err = process.communicate(text, timeout=seconds)
        finally:
            end(process)
        return Answer(process.returncode, out, err)


def finish(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> Answer:
    """Ask a process to stop, and wait until it has."""
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        end(process)
    return Answer(process.returncode, out or "", err or "")


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process if it is still running, so that it does not disturb the next test."""
    if process.poll() is None:
        process.kill()
    with process:  # closes its pipes and waits
        pass
