"""A transaction of an application holds a job and runs that others wait for: how fast do unrelated runs go meanwhile?

    python -m bench.user_locks [--quick] [--rounds 3] [--seconds 60]

The transaction adds a task to a job whose other tasks are ready, and submits runs that depend on runs under way.
Then it stays open. In the variant it is compared with it commits at once; everything else is the same. Unrelated runs
are submitted by the thousand, never far ahead of the worker; the rate is how many of them ended while the transaction
was open. The sessions of Holdfast on the server are counted twice a second.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import psycopg

from bench.contenders import Holdfast
from bench.goals import Goal
from bench.outfit import say
from bench.pairs import show, temporary_lab
from bench.processes import Crew
from bench.programs.holdfast_tasks import noop
from bench.rounds import Entry, Sample, alternate
from holdfast import Client
from holdfast.jobs import Jobs
from holdfast.runtime.settings import Settings

AWAITED = 5
JOB_TASKS = 20
AHEAD = 2_000
CHUNK = 1_000
SAMPLE_EVERY = 0.5
START_SECONDS = 60.0
WARM_UP_SECONDS = 5.0
DRAIN_SECONDS = 120.0
READY = f"""
    select rank_at from holdfast.ready
    where queue = 'unrelated' and task = %(task)s and ord = 0 and rank_at >= %(oldest)s
    order by rank_at limit {AHEAD}
"""


class Worker(Holdfast):
    """One worker with child processes, so that the runs that are waited for hold up no other."""

    executor = "process"
    slots = AWAITED + 2

    @property
    def database(self) -> str:
        return f"{self.lab.prefix}_locks"

    def sessions(self) -> int:
        """How many sessions of Holdfast's the server has, the one that asks and the application's left out."""
        found = self.sql(
            "select count(*) from pg_stat_activity where datname = %s and application_name like 'holdfast%%'",
            self.database,
        )
        return int(found[0][0])

    def ended(self) -> int:
        found = self.sql(
            "select count(*) from holdfast.attempts join holdfast.runs on runs.id = run_id"
            " where outcome = 'SUCCEEDED' and runs.queue = 'unrelated'"
        )
        return int(found[0][0])


class Feeder(threading.Thread):
    """Keeps a backlog of unrelated runs, never a long one."""

    def __init__(self, client: Client, backlog: Callable[[], int]) -> None:
        super().__init__(name="bench-feeder", daemon=True)
        self._client = client
        self._backlog = backlog
        self._stopping = threading.Event()
        self.submitted = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            if self._backlog() < AHEAD:
                numbers = range(self.submitted, self.submitted + CHUNK)
                self._client.submit_many(noop, [{"n": number} for number in numbers], queue="unrelated")
                self.submitted += CHUNK
            else:
                time.sleep(0.01)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def measured(worker: Worker, seconds: float, *, holding: bool) -> Sample:
    worker.fresh()
    with (
        worker.workers() as crew,
        Client(Settings(database_url=worker.url)) as client,
        psycopg.connect(worker.url) as user,
        psycopg.connect(worker.url, autocommit=True) as counting,
    ):
        oldest = datetime.min.replace(tzinfo=UTC)

        def backlog() -> int:
            """Count ready runs, from the oldest one of the last look on.

            Before it are only runs claimed since, which no vacuum can remove while the transaction is open: to pass
            over them again for each look would burden the server with what no worker does.
            """
            nonlocal oldest
            found = counting.execute(READY, {"task": noop.name, "oldest": oldest}).fetchall()
            oldest = found[0][0] if found else oldest
            return len(found)

        awaited = [client.submit("mock", {"seconds": 3.0, "steps": 1}) for _ in range(AWAITED)]
        until(crew, lambda: all(client.get(run).status == "RUNNING" for run in awaited))
        later = {"entrypoint": noop, "kwargs": {"n": 0}, "run_after": timedelta(seconds=1)}
        job = Jobs(client).create_job("held", [later] * JOB_TASKS)
        Jobs(client.on(user)).add_task_to_job(job, noop, {"n": 0})
        for run in awaited:
            client.on(user).submit(noop, {"n": 0}, depends_on=[run])
        if not holding:
            user.commit()
        feeder = Feeder(client, backlog)
        feeder.start()
        with contextlib.suppress(TimeoutError):
            until(crew, lambda: worker.ended() >= CHUNK, WARM_UP_SECONDS)
        before, began = worker.ended(), time.monotonic()
        sessions = [worker.sessions()]
        while time.monotonic() < began + seconds:
            crew.check()
            time.sleep(SAMPLE_EVERY)
            sessions.append(worker.sessions())
        rate = (worker.ended() - before) / (time.monotonic() - began)
        feeder.stop()
        user.commit()
        until(crew, lambda: not worker.unfinished(0), DRAIN_SECONDS)
    say("  sessions over time: " + " ".join(map(str, sessions)))
    return {"rate": rate, "sessions": float(max(sessions)), "more_sessions": float(max(sessions) - sessions[0])}


def until(crew: Crew, look: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not look():
        crew.check()
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.05)


GOALS = (
    Goal("unrelated runs, rows held", "locks", ("held", "rate"), ("free", "rate"), "nothing held", least=0.9),
    Goal(
        "sessions, most at once", "locks", ("held", "sessions"), ("free", "sessions"), "nothing held", most=1.5, unit=""
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of eight seconds: to see that it works")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="how long the transaction stays open (60)")
    options = parser.parse_args()
    seconds = options.seconds or (8.0 if options.quick else 60.0)
    with temporary_lab() as lab:
        entries = [
            Entry(name, Worker(lab), partial(measured, seconds=seconds, holding=holding))
            for name, holding in (("held", True), ("free", False))
        ]
        outcome = alternate("locks", entries, options.rounds or (1 if options.quick else 3))
    return show(GOALS, {"locks": outcome})


if __name__ == "__main__":
    sys.exit(main())
