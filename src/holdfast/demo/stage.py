"""The stage: a server, two workers and an API in a separate directory, all removed at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.demo.narrator import Narrator
from holdfast.demo.place import LEASE_SECONDS, DemoProgram, DemoStuck, environment, open_client, own_directory
from holdfast.domain.ids import new_id
from holdfast.processes.family import alive, deferred_signals

if TYPE_CHECKING:
    from holdfast.client import Client, Run
    from holdfast.http_client import HttpClient
    from holdfast.jobs import Job, Jobs

TIMEOUT = 30.0
# The first actors of a Ray cluster take a while to start.
RAY_TIMEOUT = 120.0
ASK_EVERY = 0.1
WORKERS = ("anna", "ben")
API = "api"
NEEDED_BY_API = ("flask", "gunicorn", "prometheus_client", "httpx2")
LISTENS = "the API listens on"


class Stage:
    """Sets everything up on entering, and stops and removes it on leaving, even after an error."""

    database: Client
    client: Client | HttpClient

    def __init__(self, narrator: Narrator, under: Path, executor: str = "process") -> None:
        self.narrator = narrator
        self.executor = executor
        self._timeout = RAY_TIMEOUT if executor.startswith("ray") else TIMEOUT
        self._ray_settings: dict[str, str] = {}
        self.under = under.absolute()
        self.directory = self.under / ".holdfast" / f"demo-{new_id()[-12:]}"
        self.programs: dict[str, DemoProgram] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(own_directory(self.directory))
            began = time.monotonic()
            self.database = self._stack.enter_context(open_client(self.directory))
            where = self.directory.relative_to(self.under)
            self.narrator.say(f"a separate PostgreSQL server in {where}, started in {time.monotonic() - began:.1f} s")
            if self.executor.startswith("ray"):
                self._start_ray()
            self._stack.callback(self._close_programs)
            self._start_programs()
            self.client = self._open_client()
        except BaseException:
            with deferred_signals():
                self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, Exception):
            for program in self.programs.values():
                self.narrator.say(f"the last output of {program.name}:")
                for line in program.output()[-8:]:
                    self.narrator.say(f"  {line}")
        with deferred_signals():
            self._stack.close()

    def is_gone(self) -> bool:
        """Whether no process and no file is left after the end."""
        return not self.directory.exists() and not any(alive(program.seen) for program in self.programs.values())

    def worker_of(self, run: Run) -> DemoProgram:
        """Return the worker that holds the run's lease."""
        names = {worker.id: worker.name for worker in self.client.workers()}
        return self.programs[names[run.record.lease_owner or ""]]

    def until(self, run: Run, holds: Callable[[Run], bool], seconds: float | None = None, name: str = "") -> Run:
        """Show the run's progress until a condition holds."""
        seconds = self._timeout if seconds is None else seconds
        ends = time.monotonic() + seconds
        while True:
            run = self.client.get(run)
            self.narrator.progress(run, name)
            if holds(run):
                return run
            if time.monotonic() > ends:
                raise DemoStuck(f"waited {seconds:g} s for run {run.id}, which is {run.status} ({run.last_error})")
            time.sleep(ASK_EVERY)

    def until_ended(self, jobs: Jobs, job_id: str, seconds: float = TIMEOUT) -> Job:
        """Show the job's progress until it has ended."""
        ends = time.monotonic() + seconds
        while True:
            job = jobs.get_job(job_id)
            self.narrator.counted(job.completed_tasks, job.total_tasks, "runs")
            if job.status.final:
                return job
            if time.monotonic() > ends:
                raise DemoStuck(f"waited {seconds:g} s for job {job.id}, which is {job.status}")
            time.sleep(ASK_EVERY)

    def _start_ray(self) -> None:
        """Start a Ray cluster whose nodes have the settings of the demo."""
        from holdfast.raycore.local import LocalRay, started

        began = time.monotonic()
        node = environment(self.directory) | {"HOLDFAST_DATABASE_URL": self.database.runtime.database_url}
        ray = started(lambda: LocalRay(node, cpus=2))
        self._stack.callback(ray.close)
        self._ray_settings = ray.settings
        self.narrator.say(f"a separate Ray cluster at {ray.address}, started in {time.monotonic() - began:.1f} s")

    def _start_programs(self) -> None:
        began = time.monotonic()
        with deferred_signals():
            for name in WORKERS:
                arguments = ("worker", "--name", name, "--slots", "2", "--executor", self.executor)
                self.programs[name] = DemoProgram(name, self.directory, *arguments, more=self._ray_settings)
            if all(map(find_spec, NEEDED_BY_API)):
                self.programs[API] = DemoProgram(API, self.directory, "api", "--host", "127.0.0.1", "--port", "0")
        while not self._is_ready():
            for program in self.programs.values():
                if program.process.poll() is not None or time.monotonic() > began + TIMEOUT:
                    raise DemoStuck(
                        f"{program.name} did not start: {' '.join(program.output()[-1:]) or 'it printed nothing'}"
                    )
            time.sleep(ASK_EVERY)
        names = " and ".join(f"{name} (process {self.programs[name].pid})" for name in WORKERS)
        self.narrator.say(
            f"two workers, {names}, with leases of {LEASE_SECONDS:g} s, started in {time.monotonic() - began:.1f} s"
        )

    def _is_ready(self) -> bool:
        there = {worker.name for worker in self.database.workers() if worker.status == "idle"}
        return there >= set(WORKERS) and (API not in self.programs or self._api_url() is not None)

    def _api_url(self) -> str | None:
        """Return the address that the API printed."""
        return next((line.split()[-1] for line in self.programs[API].output() if LISTENS in line), None)

    def _open_client(self) -> Client | HttpClient:
        url = self._api_url() if API in self.programs else None
        if url is None:
            self.narrator.say("the API is not installed (holdfast[server,client]), so runs are submitted directly")
            return self.database
        from holdfast.http_client import HttpClient

        self.narrator.say(f"the API at {url}, where runs are submitted and queried")
        return self._stack.enter_context(HttpClient(url, settings=self.database.settings))

    def _close_programs(self) -> None:
        for program in self.programs.values():
            program.request_stop()
        for program in self.programs.values():
            program.close()
