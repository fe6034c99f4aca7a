"""The demo's own directory with its settings, which replace the user's, and the programs that it starts there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.domain.errors import HoldfastError
from holdfast.processes.family import deferred_signals, family, kill_family, wait_gone
from holdfast.runtime.settings import PREFIX, load

if TYPE_CHECKING:
    from holdfast.client import Client

LEASE_SECONDS = 3.0
HOME = "postgres"
# Variables that contain the user's settings.
FOREIGN = (PREFIX, "POSTGRES_", "WORKER_", "JOB_", "DATABASE_URL", "REDIS_URL")


def _settings(directory: Path) -> dict[str, str]:
    return {
        "home": str(directory / HOME),
        "artifacts": str(directory / "artifacts"),
        "lease_seconds": f"{LEASE_SECONDS:g}",
        "grace_seconds": "2",
        "tasks": "holdfast.demo.tasks",
        "log_format": "pretty",
    }


def environment(directory: Path) -> dict[str, str]:
    """Return the environment with the demo's settings instead of the user's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {PREFIX + name.upper(): value for name, value in _settings(directory).items()}


def open_client(directory: Path) -> Client:
    from holdfast.client import Client

    return Client(load(environment(directory), directory))


@contextlib.contextmanager
def own_directory(path: Path) -> Iterator[None]:
    """Create the directory, and remove it afterwards, together with directories of demos that were killed.

    A directory always has a lock file next to it. If no process holds the lock, the directory is unused.
    """
    above = path.parent
    fresh = not above.exists()
    lock: int | None = None
    try:
        above.mkdir(exist_ok=True, mode=0o711)
        lock = os.open(_lock_of(path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_leftovers(above)
        path.mkdir(mode=0o711)
        yield
    finally:
        with deferred_signals():
            _remove(path)
            if lock is not None:
                os.close(lock)
            if fresh:
                with contextlib.suppress(OSError):
                    above.rmdir()


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _remove(path: Path) -> None:
    """Stop the server, even if it is still starting, and remove everything."""
    from holdfast.embedded import stop_if_unused

    if stop_if_unused(path / HOME):
        shutil.rmtree(path, ignore_errors=not path.exists())
        _lock_of(path).unlink(missing_ok=True)


def _remove_leftovers(above: Path) -> None:
    for left in above.glob("demo-*.lock"):
        with contextlib.suppress(OSError), left.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(left.with_suffix(""))


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
