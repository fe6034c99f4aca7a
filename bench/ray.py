"""Holdfast on Ray compared with Ray alone, in one run: `python -m bench.ray [--quick] [--rounds N] [--only ray_job]`.

ray_core   runs per second, compared with bare actors that do the same calls in batches of the same size, with one
           commit per batch (goal: at least 0.7), and how long calls have to be to reach that
ray_job    seconds from the submit of a job until its result is stored, compared with a bare job with the same
           number of database writes (goal: at most 1.1)
idle       transactions per second of a ray_core worker without runs

Both sides alternate on one Ray and one Postgres; each figure is the median of its rounds, and so is the ratio. Both
import from bytecode, as installed packages do: if the interpreters were not allowed to write it, each job would measure
the compiler.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from bench.pairs import temporary_lab
from bench.ray_bare import WRITES_PER_JOB, make_table
from holdfast import Client
from holdfast.domain.ids import new_id
from holdfast.executors.ray_jobs_api import RayJobs
from holdfast.executors.ray_pool import BATCH_SECONDS, MOST_PER_BATCH
from holdfast.raycore.local import LocalRay, started
from holdfast.runtime.settings import Settings
from holdfast.schema.migrate import upgrade
from holdfast.testing.databases import scratch

ROOT = Path(__file__).parents[1]
TASK = "bench.add_one"
ACTORS = 2
# How many milliseconds the calls take; with 0, they only add.
LENGTHS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 10.0)
GOAL = 0.7
LIMIT = 300.0
NOW = "select extract(epoch from clock_timestamp())"


class Bench:
    """One Ray, one database, a client, and the environment of workers."""

    def __init__(self, url: str, ray: LocalRay, node: Mapping[str, str]) -> None:
        self.url = url
        self.ray = ray
        self.environment = {**os.environ, **node, **ray.settings}
        self.client = Client(Settings(database_url=url, tasks=("bench.ray_tasks",)))

    @contextmanager
    def worker(self, executor: str, queue: str, slots: int) -> Iterator[None]:
        command = [sys.executable, "-m", "holdfast", "worker", "--executor", executor, "--queues", queue]
        process = subprocess.Popen([*command, "--slots", str(slots)], env=self.environment, cwd=ROOT)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)

    def query(self, sql: str, *parameters: object) -> float:
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute(sql, parameters).fetchone()  # type: ignore[arg-type]
        return float(row[0] or 0.0) if row else 0.0

    def until(self, sql: str, value: float, *parameters: object) -> None:
        ends = time.monotonic() + LIMIT
        while self.query(sql, *parameters) < value:
            if time.monotonic() > ends:
                raise RuntimeError(f"not within {LIMIT:g} s: {sql}")
            time.sleep(0.1)

    def drain(self, queue: str, runs: int, milliseconds: float) -> float:
        """Runs per second, from the first claim to the last result, as the database saw them."""
        self.client.pause_queue(queue, by="bench")
        first = self.query("select count(*) from holdfast.attempts")
        for start in range(0, runs, 1000):
            parameters = [
                {"number": number, "milliseconds": milliseconds} for number in range(start, min(runs, start + 1000))
            ]
            self.client.submit_many(TASK, parameters, queue=queue)
        began = self.query(NOW)
        self.client.resume_queue(queue)
        self.until("select count(*) from holdfast.attempts", first + runs)
        spent = self.query(
            "select extract(epoch from max(finished_at) - min(claimed_at)) from holdfast.attempts "
            "where claimed_at > to_timestamp(%s)",
            began,
        )
        return runs / spent

    def bare_drain(self, runs: int, milliseconds: float) -> float:
        said = subprocess.run(
            [
                *(sys.executable, "-m", "bench.ray_bare", "drain", self.ray.gcs_address, self.url, str(runs)),
                *(str(batch_of(milliseconds)), str(ACTORS), str(milliseconds)),
            ],
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        return float(said.stdout.split()[-1])

    def job(self, queue: str) -> float:
        """Seconds until the result is stored, as the database saw them: the client learns of it a little later."""
        began = self.query(NOW)
        run = self.client.submit(TASK, {"number": 1}, queue=queue)
        self.client.wait(run, LIMIT)
        ended = "select extract(epoch from max(finished_at)) from holdfast.attempts where run_id = %s"
        return self.query(ended, run.id) - began

    def bare_job(self, number: int) -> float:
        began = self.query(NOW)
        RayJobs(self.ray.address).submit(f"bare-{new_id()}", f"exec python -m bench.ray_bare job {number}", {})
        self.until("select count(*) from bench_bare where number = %s", WRITES_PER_JOB, number)
        return self.query("select extract(epoch from max(at)) from bench_bare where number = %s", number) - began

    def idle(self, seconds: float) -> float:
        """Transactions per second on this database in this time; the two that read the counter are not counted."""
        counter = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
        # Backends report their counts when they are idle, a second later at most.
        before = self.query(counter)
        time.sleep(seconds)
        return max(0.0, self.query(counter) - before - 1) / seconds


def batch_of(milliseconds: float) -> int:
    """Return how many calls of this length the executor gives an actor at once."""
    return min(MOST_PER_BATCH, round(BATCH_SECONDS * 1000 / milliseconds)) if milliseconds else MOST_PER_BATCH


def show(name: str, ours: list[float], bare: list[float], unit: str, goal: str) -> float:
    """Print the medians, and return that of the ratios."""
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    a, b, ratio = map(statistics.median, (ours, bare, ratios))
    print(f"{name}: Holdfast {a:.2f} {unit}, bare {b:.2f} {unit}; ratio {ratio:.2f} ({each}), goal {goal}")
    return ratio


def show_shortest(ratios: Mapping[float, float]) -> None:
    """Print from which length of calls on the ratio reaches the goal."""
    reached = [length for length in ratios if all(ratios[one] >= GOAL for one in ratios if one >= length)]
    shortest = f"calls of {min(reached):g} ms or more" if reached else "none of these calls"
    print(f"ray_core, ratio of at least {GOAL:g}: {shortest}")


def play_core(bench: Bench, rounds: int, runs: int, seconds: float) -> None:
    queue = f"core-{new_id()[-6:]}"
    with bench.worker("ray_core", queue, ACTORS):
        bench.drain(queue, 1000, 0.0)
        ratios = {}
        for milliseconds in LENGTHS:
            ours, bare = [], []
            calls = int(runs / max(1.0, milliseconds))
            for _ in range(rounds):
                bare.append(bench.bare_drain(calls, milliseconds))
                ours.append(bench.drain(queue, calls, milliseconds))
            name = f"ray_core, calls of {milliseconds:g} ms, {batch_of(milliseconds)} per batch"
            ratios[milliseconds] = show(name, ours, bare, "runs/s", f">= {GOAL:g}")
        show_shortest(ratios)
        time.sleep(10)
        print(f"idle: a ray_core worker without runs makes {bench.idle(seconds):.2f} transactions/s")


def play_jobs(bench: Bench, rounds: int) -> None:
    queue = f"job-{new_id()[-6:]}"
    ours, bare = [], []
    with bench.worker("ray_job", queue, 2):
        bench.bare_job(10_000_000 - 1)
        bench.job(queue)
        for number in range(rounds):
            bare.append(bench.bare_job(10_000_000 + number))
            ours.append(bench.job(queue))
    show("ray_job", ours, bare, "s", "<= 1.1")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ray", description="Holdfast on Ray compared with Ray alone.")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works")
    parser.add_argument("--rounds", type=int, help="rounds of each alternation (5)")
    parser.add_argument("--only", choices=("ray_core", "ray_job"), help="one of the two executors")
    options = parser.parse_args()
    rounds = options.rounds or (2 if options.quick else 5)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with temporary_lab() as lab, scratch(lab.postgres) as url, TemporaryDirectory() as bytecode:
        upgrade(url)
        make_table(url)
        node = {
            "HOLDFAST_DATABASE_URL": url,
            "HOLDFAST_TASKS": "bench.ray_tasks",
            "HOLDFAST_LOG_LEVEL": "warning",
            "PYTHONPYCACHEPREFIX": bytecode,
            # The source comes first: the interpreter may have another checkout installed.
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        ray = started(lambda: LocalRay({**os.environ, **node}, cpus=4))
        os.environ.update(ray.token)
        try:
            bench = Bench(url, ray, node)
            if options.only != "ray_job":
                play_core(bench, rounds, 4000 if options.quick else 20_000, 10 if options.quick else 30)
            if options.only != "ray_core":
                play_jobs(bench, rounds)
        finally:
            ray.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
