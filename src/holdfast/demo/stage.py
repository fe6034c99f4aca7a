"""The stage: a directory of its own, with a server, a client and two workers that leave nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.demo.narrator import Narrator
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import new_id
from holdfast.processes import alive, deferred_signals, family, kill_family, wait_gone
from holdfast.settings import PREFIX, load

if TYPE_CHECKING:
    from holdfast.client import Client, Run
    from holdfast.jobs import Job, Jobs

LEASE_SECONDS = 3.0
PATIENCE = 30.0
ASK_EVERY = 0.1
STOP_SECONDS = 10.0
HOME = "postgres"
# Variables that hold the user's own settings.
FOREIGN = (PREFIX, "POSTGRES_", "WORKER_", "JOB_", "DATABASE_URL", "REDIS_URL")


class DemoStuck(HoldfastError):
    """Something that the demo waited for did not come."""


class DemoWorker:
    """A worker in a process of its own."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "worker", "--name", name, "--slots", "2", "--with-parent"],
                cwd=directory,
                env=_environment(directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self.seen: set[int] = {self.process.pid}

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> list[int]:
        """`kill -9` of the worker and all its children, as a machine that goes down would."""
        members = kill_family(self.pid)
        self.seen.update(members)
        self.process.wait()
        return members

    def ask_to_stop(self) -> None:
        if self.process.poll() is None:
            self.seen.update(family(self.pid))
            self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Wait for its end, and make sure of it."""
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        if wait_gone(self.seen, STOP_SECONDS):
            raise DemoStuck(f"processes of worker {self.name} are still there: {self.seen}")


class Stage:
    """Sets everything up on entering, and takes it all down on leaving, however that comes."""

    client: Client

    def __init__(self, narrator: Narrator, under: Path) -> None:
        self.narrator = narrator
        self.under = under.absolute()
        self.directory = self.under / ".holdfast" / f"demo-{new_id()[-12:]}"
        self.workers: dict[str, DemoWorker] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(_directory(self.directory))
            began = time.monotonic()
            self.client = self._stack.enter_context(_client(self.directory))
            where = self.directory.relative_to(self.under)
            self.narrator.say(f"a PostgreSQL of its own in {where}, {time.monotonic() - began:.1f} s")
            self._stack.callback(self._close_workers)
            self._start_workers("anna", "ben")
        except BaseException:
            with deferred_signals():
                self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, Exception):
            for worker in self.workers.values():
                self.narrator.say(f"the last words of worker {worker.name}:")
                for line in worker.log.read_text(errors="replace").splitlines()[-8:]:
                    self.narrator.say(f"  {line}")
        with deferred_signals():
            self._stack.close()

    def is_gone(self) -> bool:
        """Whether, after the end, no process and no file of it is left."""
        return not self.directory.exists() and not any(alive(worker.seen) for worker in self.workers.values())

    def worker_of(self, run: Run) -> DemoWorker:
        """The worker that holds the run's lease."""
        pids = {worker.id: worker.pid for worker in self.client.workers()}
        return next(one for one in self.workers.values() if one.pid == pids.get(run.lease_owner or ""))

    def until(self, run: Run, holds: Callable[[Run], bool], seconds: float = PATIENCE) -> Run:
        """Show how the run gets on until something holds for it."""
        ends = time.monotonic() + seconds
        while True:
            run = self.client.get(run)
            self.narrator.progress(run)
            if holds(run):
                return run
            if time.monotonic() > ends:
                raise DemoStuck(f"waited {seconds:g} s for run {run.id}, which is {run.status} ({run.last_error})")
            time.sleep(ASK_EVERY)

    def until_ended(self, jobs: Jobs, job_id: str, seconds: float = PATIENCE) -> Job:
        """Show how the job gets on until it has ended."""
        ends = time.monotonic() + seconds
        while True:
            job = jobs.get_job(job_id)
            self.narrator.counted(job.completed_tasks, job.total_tasks, "runs")
            if job.status.final:
                return job
            if time.monotonic() > ends:
                raise DemoStuck(f"waited {seconds:g} s for job {job.id}, which is {job.status}")
            time.sleep(ASK_EVERY)

    def _start_workers(self, *names: str) -> None:
        began = time.monotonic()
        with deferred_signals():
            for name in names:
                self.workers[name] = DemoWorker(name, self.directory)
        while {worker.name for worker in self.client.workers() if worker.status == "idle"} < set(names):
            for worker in self.workers.values():
                if worker.process.poll() is not None or time.monotonic() > began + PATIENCE:
                    said = worker.log.read_text(errors="replace").strip().splitlines()[-1:]
                    raise DemoStuck(f"worker {worker.name} did not start: {''.join(said) or 'it said nothing'}")
            time.sleep(ASK_EVERY)
        told = " and ".join(f"{worker.name} (process {worker.pid})" for worker in self.workers.values())
        self.narrator.say(f"two workers, {told}, with leases of {LEASE_SECONDS:g} s, {time.monotonic() - began:.1f} s")

    def _close_workers(self) -> None:
        for worker in self.workers.values():
            worker.ask_to_stop()
        for worker in self.workers.values():
            worker.close()


def _settings(directory: Path) -> dict[str, str]:
    return {
        "home": str(directory / HOME),
        "artifacts": str(directory / "artifacts"),
        "lease_seconds": f"{LEASE_SECONDS:g}",
        "grace_seconds": "2",
        "tasks": "holdfast.demo.tasks",
        "log_format": "pretty",
    }


def _environment(directory: Path) -> dict[str, str]:
    """The demo's own settings in place of the user's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {PREFIX + name.upper(): value for name, value in _settings(directory).items()}


@contextlib.contextmanager
def _client(directory: Path) -> Iterator[Client]:
    from holdfast.client import Client

    with Client(load(_environment(directory), directory)) as client:
        yield client


@contextlib.contextmanager
def _directory(path: Path) -> Iterator[None]:
    """Make the directory, and remove it in the end; those of demos that were killed go too.

    A directory exists only beside its lock file, so one whose lock nobody holds is nobody's.
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
    """Stop the server, which may still be starting, and remove everything."""
    from holdfast.embedded import stop_if_unused

    if stop_if_unused(path / HOME):
        shutil.rmtree(path, ignore_errors=not path.exists())
        _lock_of(path).unlink(missing_ok=True)


def _remove_leftovers(above: Path) -> None:
    for left in above.glob("demo-*.lock"):
        with contextlib.suppress(OSError), left.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(left.with_suffix(""))
