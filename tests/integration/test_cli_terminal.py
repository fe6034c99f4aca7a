"""The command on a terminal, in a pipe that closes, and under signals."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from tests.integration.cli_support import Cli, InProcessShell, end, finish


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Cli:
    return Cli(tmp_path, database_url=database_url)


@pytest.fixture
def shell(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InProcessShell:
    return InProcessShell(tmp_path, {"database_url": database_url}, monkeypatch, capsys)


class Terminal:
    """A command whose three streams are one terminal."""

    def __init__(self, cli: Cli, *arguments: str, columns: int = 80, **env: str) -> None:
        self._screen, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        variables = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONIOENCODING": "utf-8"} | env
        self.process = cli.start(*arguments, env=variables, stdin=inside, stdout=inside, stderr=inside, process_group=0)
        os.close(inside)
        self.seen = ""

    def read_until(self, text: str) -> str:
        """Return everything shown so far, once it contains this text."""
        while text not in self.seen:
            data = os.read(self._screen, 4096)
            self.seen += data.decode()
        return self.seen

    def rest(self) -> str:
        """Return everything shown until the command ended."""
        with contextlib.suppress(OSError):  # raised by a terminal when its last writer is gone
            while data := os.read(self._screen, 4096):
                self.seen += data.decode()
        os.close(self._screen)
        self.process.wait(60)
        return self.seen


def test_progress_is_redrawn_on_one_line(cli: Cli) -> None:
    worker = cli.start("worker", "--slots", "1")
    try:
        terminal = Terminal(cli, "submit", "mock", "-p", "seconds=1", "-p", "steps=4", "--wait")
        shown = terminal.rest()
    finally:
        finish(worker)
    assert terminal.process.returncode == 0, shown
    assert "\r\x1b[K" in shown
    assert "█" in shown
    assert "4/4 steps" in shown
    progress, _, result = shown.rpartition("\r\n{\r\n")
    assert progress.count("\n") == 1, "the id is one line, all that follows is redrawn in one"
    assert json.loads("{" + result)["notes"] == "simulated"


def test_progress_line_explains_why_the_run_is_waiting(cli: Cli) -> None:
    terminal = Terminal(cli, "submit", "mock", "--wait", columns=120)
    terminal.read_until("no worker is alive")
    terminal.process.send_signal(signal.SIGINT)
    assert "runs cancel" in terminal.rest()
    assert terminal.process.returncode == 130


def test_a_table_fits_the_terminal_and_has_colours(cli: Cli, shell: InProcessShell) -> None:
    shell.ok("runs", "cancel", shell.submit(), "--reason", "because " * 40)
    shown = Terminal(cli, "runs", "list", columns=150).rest()
    lines = shown.strip().splitlines()
    assert len(lines) == 2
    assert "\x1b[35mCANCELLED" in lines[1]
    assert "…" in lines[1]
    plain = Terminal(cli, "runs", "list", columns=150, NO_COLOR="1").rest()
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= 150


def test_a_terminal_without_unicode_gets_ascii(cli: Cli) -> None:
    worker = cli.start("worker", "--slots", "1")
    try:
        parameters = ["-p", "seconds=0.5", "-p", "payload=日本"]
        shown = Terminal(cli, "submit", "mock", *parameters, "--wait", PYTHONIOENCODING="latin-1").rest()
    finally:
        finish(worker)
    assert shown.isascii()
    assert "\\u65e5\\u672c" in shown


def test_control_characters_in_a_run_do_not_reach_the_terminal(cli: Cli, shell: InProcessShell) -> None:
    run_id = shell.submit("-p", "payload:=" + json.dumps("\x1b]0;owned\x07\x9b31m"), "--tag", "\x1b[2J")
    for arguments in (["runs", "show", run_id], ["runs", "show", run_id, "--json"], ["runs", "list"]):
        shown = Terminal(cli, *arguments, NO_COLOR="1").rest()
        assert "\x1b" not in shown
        assert "\x9b" not in shown


def test_closed_pipe_is_not_an_error(cli: Cli, shell: InProcessShell) -> None:
    shell.submit()
    for arguments in (["runs", "list"], ["tasks", "list", "--json"], ["--help"]):
        read, write = os.pipe()
        os.close(read)
        process = cli.start(*arguments, stdout=write)
        os.close(write)
        _, message = process.communicate(timeout=60)
        assert (process.returncode, message) == (141, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_a_command_cleanly(cli: Cli, number: signal.Signals) -> None:
    process = cli.start("submit", "mock", "--wait", stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    try:
        process.stderr.readline()
        answer = finish(process, number)
    finally:
        end(process)
    assert answer.code == 128 + number
    assert "Traceback" not in answer.err


def test_command_started_with_nohup_outlives_its_terminal(cli: Cli) -> None:
    process = cli.start("submit", "mock", "--wait", stdout=subprocess.DEVNULL, preexec_fn=ignore_hangup)
    assert process.stderr is not None
    try:
        process.stderr.readline()
        process.send_signal(signal.SIGHUP)
        assert finish(process, signal.SIGTERM).code == 143
    finally:
        end(process)


def ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
