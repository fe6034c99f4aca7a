"""The users: threads that submit, cancel and reopen runs, create jobs, and hold transactions open, at a steady rate.

The responses that they get are recorded in the ledger. A call that raised was not acknowledged, but may have succeeded.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from holdfast import Client, RunEnded
from holdfast.domain.errors import HoldfastError
from holdfast.jobs import Jobs
from tests.chaos import tasks, tasks_rare

__all__ = ["Ledger", "User", "hold_locks", "tasks", "tasks_rare"]

WAIT_SECONDS = 60.0


@dataclass
class Ledger:
    """The responses that users got, and the requests without a response."""

    runs: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    cancel_asked: set[str] = field(default_factory=set)
    reopened: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    stop_asked: set[str] = field(default_factory=set)
    rolled_back: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self, where: str, error: Exception) -> None:
        """Record that a call raised. Only Holdfast's own errors may reach a caller."""
        with self.lock:
            self.errors[f"{where}: {type(error).__name__}"] += 1
            if not isinstance(error, HoldfastError):
                said = " ".join(str(error).split())[:120]
                kind = f"{type(error).__module__}.{type(error).__name__}"
                self.complaints.append(f"ERRORS: a caller got {kind}: {said} (in {where})")

    def pick_run(self, dice: random.Random) -> str | None:
        with self.lock:
            recent = list(self.runs)[-40:]
        return dice.choice(recent) if recent else None


class User(threading.Thread):
    """Makes one request after the other, at a given rate."""

    def __init__(self, number: int, seed: int, client: Client, url: str, ledger: Ledger, rate: float) -> None:
        super().__init__(name=f"chaos-user-{number}", daemon=True)
        self._dice = random.Random(f"{seed}/user {number}")
        self._client = client
        self._jobs = Jobs(client)
        self._url = url
        self._ledger = ledger
        self._rate = rate
        self._stopping = threading.Event()
        self._n = number * 10_000_000
        self._open: list[tuple[str, float]] = []  # runs to be reopened once they have failed

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        kinds: dict[Callable[[], None], int] = {
            self.plain: 14, self.inline: 8, self.rare: 4, self.keyed: 5, self.flaky: 4, self.stepped: 5,
            self.effect: 8, self.doomed: 3, self.second_wind: 3, self.parent: 3, self.helper: 3, self.bulk: 2,
            self.cancelled: 4, self.dependents: 4, self.mapped: 2, self.graph: 2, self.stopped_job: 1,
            self.in_transaction: 4,
        }  # fmt: skip
        due = time.monotonic()
        while not self._stopping.is_set():
            (kind,) = self._dice.choices(list(kinds), list(kinds.values()))
            self._n += 1
            self._do(kind)
            self._reopen()
            due = max(due + self._dice.expovariate(self._rate), time.monotonic() - 1.0)
            self._stopping.wait(max(0.0, due - time.monotonic()))
        ends = time.monotonic() + WAIT_SECONDS
        while self._open and time.monotonic() < ends:
            self._reopen()
            time.sleep(0.1)

    def _do(self, kind: Callable[[], None]) -> None:
        name = kind.__name__
        self._ledger.calls[name] += 1
        try:
            kind()
        except Exception as error:  # noqa: BLE001 - what a caller may get is the question
            self._ledger.failed(name, error)

    def _submit(self, task: str, parameters: dict[str, Any], result: Any = None, **options: Any) -> str:
        run = self._client.submit(task, parameters, **options)
        self._acknowledged(run.id, task, result)
        return run.id

    def _acknowledged(self, run_id: str, task: str, result: Any = None) -> None:
        with self._ledger.lock:
            self._ledger.runs[run_id] = task
            if result is not None:
                self._ledger.results[run_id] = result

    def _seconds(self) -> float:
        return round(self._dice.choice([0.0, 0.0, self._dice.uniform(0.0, 0.3), self._dice.uniform(0.3, 1.5)]), 3)

    def plain(self) -> None:
        self._submit("chaos.plain", {"n": self._n, "seconds": self._seconds()}, self._n)

    def inline(self) -> None:
        self._submit("chaos.inline", {"n": self._n}, self._n)

    def rare(self) -> None:
        self._submit("chaos.rare", {"n": self._n}, self._n)

    def flaky(self) -> None:
        self._submit("chaos.flaky", {"n": self._n, "times": self._dice.randint(1, 3)}, self._n)

    def stepped(self) -> None:
        self._submit("chaos.stepped", {"n": self._n, "seconds": self._seconds()})

    def effect(self) -> None:
        parameters = {"n": self._n, "times": self._dice.choice([0, 0, 0, 1]), "seconds": self._seconds()}
        self._submit("chaos.effect", parameters, self._n)

    def doomed(self) -> None:
        self._submit("chaos.doomed", {"n": self._n})

    def parent(self) -> None:
        self._submit("chaos.parent", {"n": self._n})

    def helper(self) -> None:
        self._submit("chaos.helper", {"n": self._n, "seconds": 0.2 + self._seconds()}, self._n)

    def bulk(self) -> None:
        numbers = [self._n * 100 + offset for offset in range(self._dice.randint(2, 20))]
        for run, n in zip(self._client.submit_many("chaos.inline", [{"n": n} for n in numbers]), numbers, strict=True):
            self._acknowledged(run.id, "chaos.inline", n)

    def keyed(self) -> None:
        """Repeat a request until it is acknowledged, and then once more: it must create one run."""
        parameters, key = {"n": self._n}, f"key-{self._n}"
        answers: list[str] = []
        ends = time.monotonic() + WAIT_SECONDS
        while len(answers) < 2 and time.monotonic() < ends:
            try:
                answers.append(self._submit("chaos.plain", parameters, self._n, key=key))
            except Exception as error:  # noqa: BLE001
                self._ledger.failed("keyed", error)
                time.sleep(0.1)
        if len(set(answers)) > 1:
            self._ledger.complaints.append(f"DOUBLED: one key made {len(set(answers))} runs: {answers}")

    def second_wind(self) -> None:
        self._open.append((self._submit("chaos.second_wind", {"n": self._n}), time.monotonic() + WAIT_SECONDS))

    def _reopen(self) -> None:
        """Reopen runs that have failed as expected."""
        kept = []
        for run_id, ends in self._open:
            try:
                run = self._client.get(run_id)
                if run.status == "FAILED":
                    self._client.retry(run_id)
                    self._ledger.reopened.add(run_id)
                    continue
                if run.status.final:
                    continue
            except RunEnded:
                pass
            except Exception as error:  # noqa: BLE001
                self._ledger.failed("retry", error)
            if time.monotonic() < ends:
                kept.append((run_id, ends))
        self._open = kept

    def cancelled(self) -> None:
        """Submit a run and cancel it, immediately or soon."""
        run_id = self._submit("chaos.plain", {"n": self._n, "seconds": self._dice.uniform(0.5, 3.0)})
        self._stopping.wait(self._dice.choice([0.0, 0.05, 0.5]))
        self._ledger.cancel_asked.add(run_id)
        with suppress(RunEnded):
            self._client.cancel(run_id, reason="no longer needed")
            self._ledger.cancelled.add(run_id)

    def dependents(self) -> None:
        first = self._submit(
            *self._dice.choice(
                [("chaos.plain", {"n": self._n, "seconds": self._seconds()}), ("chaos.doomed", {"n": self._n})]
            )
        )
        for on in ("success", "failure", "always"):
            self._submit("chaos.inline", {"n": self._n}, depends_on=[{"run": first, "on": on}])

    def mapped(self) -> None:
        rows = self._dice.randint(0, 60)
        handle = self._jobs.map("chaos.slice", range(rows), chunk_size=self._dice.randint(3, 12))
        self._job(handle.job_id, "map")
        join = self._jobs.collect(handle, into="chaos.total")
        self._acknowledged(join.id, "chaos.total", sum(range(rows)))

    def graph(self) -> None:
        """Tasks that depend on each other; one of them fails and is not critical."""
        seconds = self._seconds()
        job = self._jobs.create_job(
            "graph",
            [
                {"entrypoint": "chaos.plain", "kwargs": {"n": 1, "seconds": seconds}, "key": "a"},
                {"entrypoint": "chaos.doomed", "kwargs": {"n": 2}, "key": "b", "critical": False},
                {"entrypoint": "chaos.effect", "kwargs": {"n": 3, "times": 0, "seconds": 0.0}, "depends_on": ["a"]},
                {
                    "entrypoint": "chaos.inline",
                    "kwargs": {"n": 4},
                    "depends_on": ["a", {"task": "b", "on": "failure"}],
                },
                {"entrypoint": "chaos.inline", "kwargs": {"n": 5}, "depends_on": ["b"], "critical": False},
            ],
        )
        self._job(job.id, "graph")

    def stopped_job(self) -> None:
        tasks = [{"entrypoint": "chaos.plain", "kwargs": {"n": 1, "seconds": 2.0}}] * self._dice.randint(2, 5)
        job = self._jobs.create_job("stopped", tasks)
        self._job(job.id, "stopped")
        self._stopping.wait(self._dice.choice([0.0, 0.3, 1.0]))
        self._ledger.stop_asked.add(job.id)
        if self._jobs.cancel_job(job, reason="no longer needed").status != "SUCCEEDED":
            self._ledger.stopped.add(job.id)

    def _job(self, job_id: str, kind: str) -> None:
        with self._ledger.lock:
            self._ledger.jobs[job_id] = kind

    def in_transaction(self) -> None:
        """Write a run and a row of the application in one transaction: either both exist, or neither."""
        committing = self._dice.random() < 0.7
        pause = self._dice.choice([0.0, self._dice.uniform(0.0, 0.5)])
        with suppress(psycopg.Error), psycopg.connect(self._url, connect_timeout=5) as connection:
            run = self._client.on(connection).submit("chaos.plain", {"n": self._n})
            connection.execute("insert into orders (run_id) values (%s)", [run.id])
            self._stopping.wait(pause)
            if committing:
                connection.commit()
                self._acknowledged(run.id, "chaos.plain", self._n)
            else:
                connection.rollback()
                self._ledger.rolled_back.add(run.id)


def hold_locks(client: Client, url: str, ledger: Ledger, dice: random.Random, seconds: float) -> str:
    """A transaction of an application that locks a job and a running run, and stays open for a while."""
    held = "nothing"
    with suppress(psycopg.Error, HoldfastError), psycopg.connect(url, connect_timeout=5) as connection:
        open_jobs = connection.execute("select id::text from holdfast.jobs where finished_at is null").fetchall()
        open_runs = connection.execute(
            "select run_id::text from holdfast.leases union select run_id::text from holdfast.ready limit 50"
        ).fetchall()
        on = client.on(connection)
        made: list[str] = []
        if open_jobs and dice.random() < 0.6:
            (job_id,) = dice.choice(open_jobs)
            made.append(Jobs(on).add_task_to_job(job_id, "chaos.inline", {"n": 0}).id)
            held = "a job"
        if open_runs and (held == "nothing" or dice.random() < 0.5):
            awaited = [run_id for (run_id,) in dice.sample(open_runs, min(3, len(open_runs)))]
            edges = [{"run": run_id, "on": "always"} for run_id in awaited]
            made.append(on.submit("chaos.inline", {"n": 0}, depends_on=edges).id)
            held = "a job and runs" if held == "a job" else "runs"
        time.sleep(seconds)
        if dice.random() < 0.5:
            connection.commit()
            with ledger.lock:
                ledger.runs.update(dict.fromkeys(made, "chaos.inline"))
        else:
            connection.rollback()
            ledger.rolled_back.update(made)
    return held
