"""The workers: ordinary processes, each with its own connection to the database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.processes.family import alive, family, wait_gone
from tests.chaos.tasks import NOTES

ROOT = Path(__file__).parents[2]
MARK = "CHAOS_WORKER"
STOP_SECONDS = 30.0
# How long processes started by a worker may take to notice that the worker is gone.
SURVIVAL_SECONDS = 5.0
UNREACHABLE_EXIT = 69


@dataclass
class Member:
    """One position in the fleet; a killed worker is replaced by a new one in the same position."""

    name: str
    route: str
    url: str
    tasks: str
    process: subprocess.Popen[bytes] | None = None
    generation: int = 0
    leaving: bool = False
    log_from: int = 0
    frozen: list[int] = field(default_factory=list)

    @property
    def mark(self) -> str:
        return f"{self.name}.{self.generation}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Fleet:
    def __init__(self, directory: Path, members: Iterable[Member], lease: float) -> None:
        self._directory = directory
        self.members = list(members)
        self._lease = lease
        self.exits: Counter[str] = Counter()
        self.complaints: list[str] = []
        self._gone: dict[str, tuple[float, str]] = {}

    def start(self, member: Member) -> None:
        member.generation += 1
        member.leaving = False
        member.frozen = []
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PG"))}
        environment |= {
            "HOLDFAST_DATABASE_URL": member.url,
            "HOLDFAST_ARTIFACTS": str(self._directory / "artifacts"),
            "HOLDFAST_LEASE_SECONDS": str(self._lease),
            "HOLDFAST_RENEW_SECONDS": str(self._lease / 6),
            "HOLDFAST_GRACE_SECONDS": "1",
            "HOLDFAST_TASKS": member.tasks,
            "HOLDFAST_LOG_FORMAT": "json",
            NOTES: str(self._directory / "notes"),
            MARK: member.mark,
        }
        command = [sys.executable, "-m", "holdfast", "worker", "--slots", "2", "--name", member.mark]
        command += ["--with-parent", str(os.getpid())]
        with (self._directory / f"worker-{member.name}.log").open("ab") as log:
            member.log_from = log.seek(0, os.SEEK_END)
            member.process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def tend(self) -> None:
        """Replace workers that have ended. A worker that started and then ended without being asked is a defect."""
        for member in self.members:
            if member.process is None or (code := member.process.poll()) is None:
                continue
            started, said = self._log_of(member)
            if member.leaving and started:
                how, fine = "was asked to stop", code == 0
            elif member.leaving:
                # The signal may arrive before the interpreter has run any of our code.
                how, fine = "was asked to stop while it started", code in (0, -signal.SIGTERM)
            elif started:
                how, fine = "ended unasked", False
            else:
                how, fine = "did not start", code == UNREACHABLE_EXIT
            self.exits[f"{how}: exit {code}"] += 1
            if not fine:
                self.complaints.append(f"a worker ({member.route}) {how} and exited with {code}: {said}")
            self._replace(member, how)
        now = time.monotonic()
        due = [mark for mark, (gone_at, _) in self._gone.items() if gone_at + SURVIVAL_SECONDS < now]
        for mark in due:
            self._survived(mark, self._gone.pop(mark)[1], _marked(mark))

    def _log_of(self, member: Member) -> tuple[bool, str]:
        """Whether the ended worker had registered, and the last error in its log."""
        log = (self._directory / f"worker-{member.name}.log").read_bytes()[member.log_from :]
        lines = log.decode(errors="replace").splitlines()
        errors = [line for line in lines if '"level": "error"' in line or not line.startswith("{")]
        return any('"worker.started"' in line for line in lines), errors[-1][:300] if errors else "(no error logged)"

    def _replace(self, member: Member, how: str) -> None:
        self._gone[member.mark] = (time.monotonic(), how)
        self.start(member)

    def _survived(self, mark: str, how: str, left: list[int]) -> None:
        """Report processes that outlived their supervisor, and kill them."""
        if left:
            names = ", ".join(sorted({_command(pid) for pid in left}))
            self.complaints.append(f"{len(left)} processes outlived the worker {mark}, which {how}: {names}")
        self._kill(left)

    def kill_tree(self, member: Member) -> None:
        """Kill a worker and all its descendants at the same instant, as a machine failure does."""
        assert member.process is not None
        self._kill(reversed(suspend_family(member.process.pid)))
        member.process.wait()
        self._replace(member, "was killed with its descendants")

    def kill_supervisor(self, member: Member) -> None:
        """Kill only the supervisor: the processes that it started must end by themselves."""
        assert member.process is not None
        member.process.kill()
        member.process.wait()
        self._replace(member, "was killed alone")

    def children_of(self, member: Member) -> list[int]:
        """The processes that execute runs, and their guardians, without processes started by tasks."""
        assert member.process is not None
        return [pid for pid in family(member.process.pid)[1:] if not _command(pid).startswith("sleep")]

    def freeze_tree(self, member: Member) -> None:
        assert member.process is not None
        self.freeze(member, family(member.process.pid))

    def freeze(self, member: Member, pids: list[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        member.frozen += pids

    def thaw(self, member: Member) -> None:
        for pid in member.frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        member.frozen = []

    def ask_to_stop(self, member: Member) -> None:
        assert member.process is not None
        member.leaving = True
        member.process.terminate()

    def close(self) -> None:
        """Stop all workers cleanly, kill those that do not stop, and report what is left."""
        started = [member for member in self.members if member.process is not None]
        for member in started:
            self.thaw(member)
            self.ask_to_stop(member)
        for member in started:
            assert member.process is not None
            members = family(member.process.pid)
            try:
                code = member.process.wait(STOP_SECONDS)
                self.exits[f"stopped at the end: {code}"] += 1
                if code:
                    self.complaints.append(f"worker {member.mark} exited with {code} at the end")
            except subprocess.TimeoutExpired:
                self.complaints.append(f"worker {member.mark} did not stop within {STOP_SECONDS:g} s")
                self._kill(members)
                member.process.wait()
            self._gone[member.mark] = (time.monotonic(), "was stopped at the end")
            member.process = None
        for mark, (_, how) in self._gone.items():
            self._survived(mark, how, wait_gone(_marked(mark), SURVIVAL_SECONDS))
        self._gone.clear()

    def _kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def suspend_family(pid: int) -> list[int]:
    """Suspend a process and all its descendants; returns them, parents first.

    The search is repeated, because a process may start while the others are being found; a suspended process starts no
    more. Otherwise `kill_tree` would leave it behind without the guardian that would have killed it.
    """
    suspended: list[int] = []
    while found := [one for one in family(pid) if one not in suspended]:
        for one in found:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
        suspended += found
    return suspended


def _marked(mark: str) -> list[int]:
    """The processes with this mark in their environment: a worker and all its descendants."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return alive(found)


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:80]
    return str(pid)
