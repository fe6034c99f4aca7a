"""Workers for tests: in a thread of the test, or as a process that can be killed and frozen."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from holdfast.assembly.worker import WorkerRequest, worker_options
from holdfast.client import Client, Run
from holdfast.domain.execution import Executor
from holdfast.processes.family import alive, family
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import Settings
from holdfast.worker import Worker

T = TypeVar("T")

TASKS = "tests.integration.worker_tasks"
DEADLINE = 30.0
ROOT = Path(__file__).parents[2]
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.01, 0.05, 1.2


def eventually(look: Callable[[], T], within: float | None = None) -> T:
    """Return the result of `look` as soon as it is true, or fail after `within` seconds (DEADLINE)."""
    within = DEADLINE if within is None else within
    ends = time.monotonic() + within
    pause = FIRST_PAUSE
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > ends:
            raise AssertionError(f"not within {within} s: {look}")
        time.sleep(pause)
        pause = min(pause * GROWTH, LONGEST_PAUSE)


def _close_all(connections: list[psycopg.Connection]) -> None:
    for connection in connections:
        connection.close()
    connections.clear()


class Stage:
    """A database, a client, a directory, and workers."""

    def __init__(self, database_url: str, directory: Path, **settings: Any) -> None:
        self.url = database_url
        self.directory = directory
        self.settings = Settings(
            database_url=database_url,
            artifacts=str(directory / "artifacts"),
            **{"tasks": (TASKS,), "lease_seconds": 3.0, "renew_seconds": 0.5, "grace_seconds": 1.0, **settings},
        )
        self.client = Client(self.settings)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[psycopg.Connection] = []
        # A mutant makes a test fail before it closes its stage.
        weakref.finalize(self, _close_all, self._connections)

    def close(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            members = family(process.pid)
            for member in members:
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            process.wait()
            eventually(lambda members=members: not alive(members))
        self.client.close()
        _close_all(self._connections)

    def file(self, name: str) -> Path:
        return self.directory / name

    def submit(self, task: str, **parameters: Any) -> Run:
        return self.client.submit(task, parameters)

    def said(self, name: str, lines: int = 1) -> list[str]:
        """The lines that runs have written to this file, once there are this many."""
        path = self.file(name)
        return eventually(
            lambda: found if path.exists() and len(found := path.read_text().splitlines()) >= lines else None
        )

    def ended(self, run: Run, within: float | None = None) -> Run:
        return self.client.wait(run, DEADLINE if within is None else within)

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Execute a statement, on one connection for all of them: tests look again and again until something is so."""
        kept = bool(self._connections)
        if not kept:
            self._connections.append(psycopg.connect(self.url, autocommit=True))
        [connection] = self._connections
        try:
            cursor = connection.execute(sql, parameters)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            if not (kept and connection.closed):
                raise
        finally:
            if connection.closed:
                self._connections.clear()
        # The server or the test has ended the session since the last statement.
        return self.query(sql, *parameters)

    def attempts(self, run: Run) -> list[tuple[int, str, str | None, str | None]]:
        return [(a.number, a.status, a.outcome, a.reason) for a in self.client.attempts(run)]

    def event_types(self, run: Run) -> list[str]:
        return [event.type for event in self.client.events(run)]

    @contextmanager
    def worker(self, executor: str | Executor = "process", slots: int = 1, **changes: Any) -> Iterator[Worker]:
        """A worker in a separate thread, stopped at the end."""
        with Runtime(self.settings) as runtime:
            name = executor if isinstance(executor, str) else executor.name
            options = worker_options(runtime, WorkerRequest(slots=slots, executor=name))
            if not isinstance(executor, str):
                changes["executors"] = {**options.executors, name: executor}
            worker = Worker(replace(options, **changes))
            ready = threading.Event()
            failures: list[BaseException] = []

            async def main() -> None:
                loops.append(asyncio.get_running_loop())
                ready.set()
                await worker.serve()

            def work() -> None:
                try:
                    asyncio.run(main())
                except Exception as error:  # noqa: BLE001 - raised again in the test's thread
                    failures.append(error)
                    ready.set()

            loops: list[asyncio.AbstractEventLoop] = []
            thread = threading.Thread(target=work, name="test-worker")
            thread.start()
            ready.wait()
            try:
                yield worker
            finally:
                for loop in loops:
                    with suppress(RuntimeError):
                        loop.call_soon_threadsafe(worker.stop)
                thread.join(DEADLINE)
                assert not thread.is_alive(), "the worker does not stop"
                if failures:
                    raise failures[0]

    def start(self, *arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
        """A worker as a process."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        given = {
            "database_url": self.url,
            "tasks": ",".join(self.settings.tasks),
            "artifacts": self.settings.artifacts,
            "lease_seconds": self.settings.lease_seconds,
            "renew_seconds": self.settings.renew_seconds,
            "grace_seconds": self.settings.grace_seconds,
            **settings,
        }
        environment |= {f"HOLDFAST_{name.upper()}": str(value) for name, value in given.items()}
        command = [sys.executable, "-m", "holdfast", "worker", *arguments]
        log = (self.directory / f"worker-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        log.close()
        self.processes.append(process)
        return process

    def worker_of(self, run: Run) -> str:
        """The id of the worker that holds the run's lease."""
        return eventually(lambda: self.client.get(run).lease_owner)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and all its children at the same instant, as a machine failure does."""
    members = family(process.pid)
    for member in members:
        os.kill(member, signal.SIGSTOP)
    for member in reversed(members):
        os.kill(member, signal.SIGKILL)
    process.wait()


def freeze(process: subprocess.Popen[bytes]) -> list[int]:
    members = family(process.pid)
    for member in members:
        os.kill(member, signal.SIGSTOP)
    return members


def thaw(members: list[int]) -> None:
    for member in members:
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGCONT)
