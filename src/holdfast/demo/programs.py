"""The demo's programs: `holdfast` commands in separate processes, which can be killed without leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from holdfast.demo.place import environment
from holdfast.domain.errors import HoldfastError
from holdfast.processes.family import family, kill_family, wait_gone

STOP_SECONDS = 10.0


class DemoStuck(HoldfastError):
    """Something that the demo waited for did not happen."""


class DemoProgram:
    """A `holdfast` command in a separate process."""

    def __init__(self, name: str, directory: Path, *arguments: str, more: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *arguments, "--with-parent", str(os.getpid())],
                cwd=directory,
                env={**environment(directory), **(more or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self.seen: set[int] = {self.process.pid}

    def output(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> list[int]:
        """Kill the process and all its children with SIGKILL, as a machine failure would."""
        members = kill_family(self.pid)
        self.seen.update(members)
        self.process.wait()
        return members

    def request_stop(self) -> None:
        if self.process.poll() is None:
            self.seen.update(family(self.pid))
            self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Wait until it has ended, and kill it if it does not end."""
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        if wait_gone(self.seen, STOP_SECONDS):
            raise DemoStuck(f"processes of {self.name} are still running: {self.seen}")
