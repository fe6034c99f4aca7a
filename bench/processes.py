"""Contenders' processes: started in sessions of their own, stopped by id, weighed while they run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.processes.family import family

STOP_SECONDS = 8.0
TICKS = os.sysconf("SC_CLK_TCK")


class Crew:
    """Worker processes of one contender."""

    def __init__(self, commands: Sequence[Sequence[str]], environment: dict[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self.processes = [
                subprocess.Popen(
                    command,
                    env=environment,
                    cwd=log.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
                for command in commands
            ]
        self._log = log

    def check(self) -> None:
        """Raise if any of them has ended."""
        ended = [process.returncode for process in self.processes if process.poll() is not None]
        if ended:
            last = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"a worker ended with {ended}; the end of {self._log}:\n{last}")

    def pids(self) -> list[int]:
        return [pid for process in self.processes for pid in family(process.pid)]

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + STOP_SECONDS
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
            # Whatever of its session is left is ours to end.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Asker:
    """A client program, obeying one command at a time."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, what: str, first: int, count: int, **more: Any) -> None:
        """Give a command without waiting for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, "first": first, "count": count, **more}) + "\n")
        self._process.stdin.flush()

    def ask(self, what: str, first: int, count: int, **more: Any) -> float:
        """Give a command; returns how many seconds it took."""
        self.tell(what, first, count, **more)
        return self._answer()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            last = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"a client ended with {self._process.wait()}; the end of {self._log}:\n{last}")
        return float(json.loads(line)["seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def running(crew: Crew) -> Iterator[Crew]:
    try:
        yield crew
    finally:
        crew.stop()


@contextlib.contextmanager
def asking(asker: Asker) -> Iterator[Asker]:
    try:
        yield asker
    finally:
        asker.close()


def cpu_seconds(pids: Sequence[int]) -> float:
    """How long these processes have been on a core so far."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def resident_megabytes(pid: int) -> float:
    """The memory of a process, pages it shares with others included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
