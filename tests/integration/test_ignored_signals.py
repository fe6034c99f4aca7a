"""The suite passes however it is started: programs under test do not inherit the signals that its shell ignores."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.conftest import stop_passing_on_ignored_signals

ENDED_BY_ITSELF = "import os, signal; os.kill(os.getpid(), signal.{}); print('survived')"


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT"])
def test_signal_that_the_suite_ignores_ends_a_program_that_a_test_starts(name: str) -> None:
    number = signal.Signals[name]
    before = signal.signal(number, signal.SIG_IGN)
    try:
        stop_passing_on_ignored_signals()
        signal.raise_signal(number)
        done = subprocess.run([sys.executable, "-c", ENDED_BY_ITSELF.format(name)], capture_output=True, text=True)
    finally:
        signal.signal(number, before)
    assert (done.returncode, done.stdout) == (-number, "")
