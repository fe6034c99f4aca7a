"""The real command in a process of its own, and its answers."""

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
# What a machine or a test run may have set: a command under test gets settings from its test alone.
FOREIGN = ("HOLDFAST_", "POSTGRES_", "WORKER_", "JOB_", "DATABASE_URL", "REDIS_URL", "NO_COLOR")


@dataclass(frozen=True)
class Answer:
    """How a command ended and what it said."""

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
    """Gives commands, and looks at the answers."""

    directory: Path

    def __call__(self, *arguments: str, text: str | None = None, env: dict[str, str] | None = None) -> Answer:
        raise AssertionError("how a command is run is not said")

    def ok(self, *arguments: str, text: str | None = None) -> Answer:
        """Run a command that has to succeed."""
        answer = self(*arguments, text=text)
        assert answer.code == 0, answer
        return answer

    def refused(self, *arguments: str, code: int, env: dict[str, str] | None = None) -> str:
        """Run a command that has to be refused, with nothing on stdout; returns what it said, in one line."""
        answer = self(*arguments, env=env)
        assert answer.code == code, answer
        assert answer.out == "", answer
        assert "Traceback" not in answer.err
        told = [line for line in answer.err.splitlines() if line.startswith("holdfast: ")]
        assert len(told) == 1, answer
        return told[0].removeprefix("holdfast: ")

    def submit(self, *arguments: str) -> str:
        """Make a run of the mock; returns its id."""
        return self.ok("submit", "mock", *arguments).out.strip()

    def work(self, *arguments: str) -> Answer:
        """Let a worker do all there is to do."""
        return self.ok("worker", "--until-empty", "--slots", "2", *arguments)


class Inside(Shell):
    """Runs commands inside the test's process, which costs a tenth of a process of their own."""

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
        assert text is None, "only a process of its own has a stdin"
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            code = invoke(arguments)
        out, err = self._capture.readouterr()
        return Answer(code, out, err)

    def work(self, *arguments: str) -> Answer:
        """Let a worker do all there is to do, without child processes."""
        return super().work("--executor", "inline", *arguments)


class Cli(Shell):
    """Runs `holdfast` with settings and a directory of its own."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.settings = {"HOLDFAST_" + name.upper(): value for name, value in settings.items()}

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return kept | self.settings | more

    def start(self, *arguments: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start a command and return at once."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        # A suite that was started with `nohup` ignores SIGHUP, which a command would inherit.
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
    """Ask a process to stop, and wait for that."""
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        end(process)
    return Answer(process.returncode, out or "", err or "")


def end(process: subprocess.Popen[str]) -> None:
    """Leave nothing of a process to the next test, whatever became of this one."""
    if process.poll() is None:
        process.kill()
    with process:  # closes its pipes and waits
        pass
