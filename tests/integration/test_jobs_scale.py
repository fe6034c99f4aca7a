"""Guarantees of jobs at scale: kills in the middle of nested maps, retry, cancel, and the order of a random graph.

Each test is small by default and takes seconds. `JOBS_SCALE=full` runs it at full size:

    JOBS_SCALE=full python -m pytest tests/integration/test_jobs_scale.py -s

All checks use the rows of the attempts, not the output of tasks.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import task
from holdfast.assembly.services import services
from holdfast.jobs import Job, Jobs
from holdfast.runtime.runtime import Runtime
from tests.integration.jobs_support import disagreements
from tests.integration.worker_support import Stage, eventually, kill_tree

FULL = os.environ.get("JOBS_SCALE") == "full"
TASKS = ("tests.integration.job_tasks", "tests.integration.worker_tasks")
SEED = 20

pytestmark = pytest.mark.timeout(1800 if FULL else 120)


@task("scale.hold_together", executor="inline")
async def hold_together() -> None:
    """Runs until it is stopped; a worker can hold hundreds."""
    await asyncio.Event().wait()


def size(small: int, full: int) -> int:
    return full if FULL else small


@pytest.fixture
def stage(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.delenv("HOLDFAST_TEST_RUN_DIRECTORY", raising=False)  # no setting of a worker's children
    stage = Stage(database_url, tmp_path, tasks=TASKS)
    yield stage
    stage.close()
    with psycopg.connect(database_url) as connection:
        assert disagreements(connection) == []


@pytest.fixture
def jobs(stage: Stage) -> Jobs:
    return Jobs(stage.client)


@pytest.fixture
def worker(stage: Stage) -> Iterator[None]:
    with Runtime(stage.settings) as runtime, stage.worker(services=services(runtime)):
        yield


def ended(jobs: Jobs, job: Any) -> Job:
    return jobs.wait_for_job(job, size(60, 1500))


class TestKills:
    """`kill -9` of workers, seeded, in the middle of a map whose chunks map and collect in turn."""

    chunks = size(40, 5000)
    kills = size(3, 25)
    rows_of_a_chunk = 3  # which `job.nest` maps in slices of two: two children and a join for each chunk

    def test_every_chunk_is_counted_once_and_no_child_is_duplicated(self, stage: Stage, jobs: Jobs) -> None:
        began = time.monotonic()
        rows = list(range(self.chunks * self.rows_of_a_chunk))
        handle = jobs.map(
            "job.nest",
            rows,
            chunk_size=self.rows_of_a_chunk,
            path=str(stage.file("totals")),
            options={"max_retries": 100},
        )
        join = jobs.collect(handle, into="job.count", options={"max_retries": 100}, path=str(stage.file("count")))
        self._kill_while_it_runs(stage, jobs, handle.job_id)
        job = ended(jobs, handle.job_id)
        assert (job.status, job.total_tasks) == ("SUCCEEDED", 4 * self.chunks + 1), job
        self._check_rows(stage, handle.id, join.id)
        assert jobs.get_task(join).result() == self.chunks
        totals = [one.result() for one in job.tasks if one.entrypoint == "job.total"]
        assert sum(total["sum"] for total in totals) == sum(rows)
        assert sorted(offset for total in totals for offset in total["offsets"]) == sorted(
            offset for first in range(0, len(rows), 3) for offset in (first, first + 2)
        )
        (lost,) = stage.query("select count(*) from holdfast.attempts where status = 'LOST'")
        print(
            f"\n{self.chunks} chunks, {job.total_tasks} runs, {self.kills} kills, {lost[0]} attempts lost,"
            f" {time.monotonic() - began:.0f} s"
        )

    def _kill_while_it_runs(self, stage: Stage, jobs: Jobs, job_id: str) -> None:
        chance = random.Random(SEED)
        living = [stage.start("--slots", "2") for _ in range(2)]
        total = 4 * self.chunks
        # At these points of its progress something is killed at random: usually a whole worker.
        for moment in sorted(chance.sample(range(total // 10, total * 8 // 10), self.kills)):
            eventually(lambda moment=moment: jobs.get_job(job_id).completed_tasks >= moment, size(60, 600))
            victim = chance.randrange(len(living))
            kill_tree(living[victim])
            living[victim] = stage.start("--slots", "2")

    def _check_rows(self, stage: Stage, map_id: str, join_id: str) -> None:
        """One success for each run, one child for each slice, and a join that began after all chunks had ended."""
        assert (
            stage.query(
                """select run_id from holdfast.attempts group by run_id
               having count(*) filter (where outcome = 'SUCCEEDED') <> 1 or count(outcome) <> 1"""
            )
            == []
        )
        children = stage.query(
            """select count(*) filter (where task = 'job.square'), count(*) filter (where task = 'job.total')
               from holdfast.runs where parent_id is not null group by parent_id"""
        )
        assert Counter(children) == {(2, 1): self.chunks}
        ((first, last, starts),) = stage.query(
            """select (select min(claimed_at) from holdfast.attempts where run_id = %s),
                      (select max(finished_at) from holdfast.attempts join holdfast.runs on runs.id = run_id
                       where map_id = %s),
                      (select count(*) from holdfast.attempts where run_id = %s and outcome = 'SUCCEEDED')""",
            join_id,
            map_id,
            join_id,
        )
        assert (last <= first, starts) == (True, 1)


class TestRetry:
    tasks, every = size(100, 1000), size(15, 143)  # the first of each group of this size fails: seven in both cases

    @pytest.mark.usefixtures("worker")
    def test_failed_tasks_run_again_and_then_the_join(self, stage: Stage, jobs: Jobs) -> None:
        path = stage.file("flag")
        handle = jobs.map("job.fail_some", range(self.tasks), chunk_size=1, path=str(path), every=self.every)
        join = jobs.collect(handle, into="job.count", path=str(path))
        job = ended(jobs, handle.job_id)
        assert (job.status, job.failed_tasks, job.completed_tasks) == ("FAILED", 7, self.tasks - 7)
        before = self._attempts(stage)
        failed = {run_id for run_id, number, status, *_ in before if status == "FAILED"}
        path.touch()
        began = time.monotonic()
        assert jobs.retry_failed_tasks(job) == 8
        job = ended(jobs, job)
        print(f"\n{self.tasks} tasks, 7 failed: retry and join took {time.monotonic() - began:.2f} s")
        assert (job.status, job.completed_tasks) == ("SUCCEEDED", self.tasks + 1), jobs.get_task(join).error_message
        again = self._attempts(stage)[len(before) :]
        assert {run_id for run_id, *_ in again[:-1]} == failed
        assert ([status for *_, status, _, _ in again], again[-1][0]) == (["SUCCEEDED"] * 8, join.id)
        assert max(finished for *_, finished in again[:-1]) <= again[-1][3]
        assert jobs.get_task(join).result() == self.tasks

    def _attempts(self, stage: Stage) -> list[tuple[Any, ...]]:
        """What was attempted, in the order in which it began."""
        return stage.query(
            """select run_id::text, number, status, claimed_at, finished_at from holdfast.attempts
               where claimed_at is not null order by claimed_at, run_id"""
        )


class TestCancel:
    tasks = size(60, 1000)
    slots, together = size(2, 8), size(10, 400)

    def test_nothing_starts_after_the_acknowledgement(self, stage: Stage, jobs: Jobs) -> None:
        """Some runs stop when asked, some never check and are killed, and most have not begun."""
        for _ in range(2):
            stage.start("--slots", str(self.slots), "--queues", "default")
        path, deaf = str(stage.file("held")), str(stage.file("deaf"))
        tasks: list[dict[str, Any]] = [{"entrypoint": "deaf", "kwargs": {"started": deaf}, "priority": 1}] * 2
        for number in range(self.tasks - 2):
            one = {"entrypoint": "job.hold", "kwargs": {"path": path}}
            tasks.append(one if number % 2 else {"entrypoint": hold_together, "queue": "together"})
        job = jobs.create_job("to be cancelled", tasks)
        with stage.worker("inline", slots=self.together, queues=("together",)):
            self._cancel(stage, jobs, job)

    def _cancel(self, stage: Stage, jobs: Jobs, job: Job) -> None:
        stage.said("deaf", 2)
        stage.said("held", 2 * self.slots - 2)
        most = 2 * self.slots + self.together
        eventually(lambda: stage.query("select count(*) from holdfast.leases") >= [(most,)])
        ((running,),) = stage.query("select count(*) from holdfast.leases")
        jobs.cancel_job(job)
        ((acknowledged,),) = stage.query("select clock_timestamp()")
        job = ended(jobs, job)
        assert (job.status, job.cancelled_tasks, job.completed_tasks) == ("CANCELLED", self.tasks, 0)
        assert job.finished_at is not None
        attempts = stage.query("select claimed_at, outcome from holdfast.attempts")
        assert max(claimed_at for claimed_at, _ in attempts if claimed_at is not None) <= acknowledged
        assert Counter(outcome for _, outcome in attempts if outcome is not None) == {"CANCELLED": self.tasks}
        assert stage.query("select from holdfast.leases") == stage.query("select from holdfast.ready") == []
        print(
            f"\n{self.tasks} tasks, {running} of them running: the job ended"
            f" {(job.finished_at - acknowledged).total_seconds():.2f} s after the ack"
        )


class TestGraph:
    """A random acyclic graph: every edge leads to an earlier node."""

    nodes, edges = size(120, 2500), size(480, 10_000)

    @pytest.mark.usefixtures("worker")
    def test_order_and_policies_are_respected(self, stage: Stage, jobs: Jobs) -> None:
        began = time.monotonic()
        tasks, expected = self._graph(stage)
        job = jobs.create_job("graph", tasks)
        made = time.monotonic() - began
        assert stage.query("select count(*) from holdfast.dependencies") == [(self.edges,)]
        job = ended(jobs, job)
        assert {one.key: str(one.status) for one in job.tasks} == expected
        print(
            f"\n{self.nodes} nodes, {self.edges} edges: made in {made:.1f} s, done in"
            f" {time.monotonic() - began:.1f} s, {dict(Counter(expected.values()))}"
        )
        early = stage.query(
            """select dependencies.* from holdfast.dependencies
               join holdfast.attempts as began on began.run_id = dependencies.run_id and began.claimed_at is not null
               left join holdfast.attempts as awaited on awaited.run_id = on_id and awaited.outcome is not null
               where awaited.run_id is null or awaited.finished_at > began.claimed_at
                  or not holdfast.meets(awaited.outcome, policy)"""
        )
        assert early == []
        ran = stage.query("select run_id, count(*) from holdfast.attempts where claimed_at is not null group by 1")
        assert Counter(count for _, count in ran) == {1: sum(status != "CANCELLED" for status in expected.values())}

    def _graph(self, stage: Stage) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The tasks, and how each has to end."""
        chance = random.Random(SEED)
        pairs: set[tuple[int, int]] = set()
        while len(pairs) < self.edges:
            earlier, later = sorted(chance.sample(range(self.nodes), 2))
            pairs.add((later, earlier))
        awaits: list[list[int]] = [[] for _ in range(self.nodes)]
        for later, earlier in sorted(pairs):
            awaits[later].append(earlier)
        tasks, ends = [], list[str]()
        for node in range(self.nodes):
            policies = {earlier: policy(chance, ends[earlier]) for earlier in awaits[node]}
            reachable = all(meets(ends[earlier], on) for earlier, on in policies.items())
            fails = chance.random() < 0.15
            task = {"entrypoint": "job.fail_unless", "kwargs": {"path": str(stage.file("none" if fails else "."))}}
            edges = [{"task": str(earlier), "on": on} for earlier, on in policies.items()]
            tasks.append({**task, "key": str(node), "depends_on": edges, "critical": False})
            ends.append(("FAILED" if fails else "SUCCEEDED") if reachable else "CANCELLED")
        chance.shuffle(tasks)
        return tasks, {str(node): end for node, end in enumerate(ends)}


def meets(outcome: str, on: str) -> bool:
    return {"success": outcome == "SUCCEEDED", "failure": outcome == "FAILED", "always": True}[on]


def policy(chance: random.Random, outcome: str) -> str:
    """Any policy, but usually one that this outcome satisfies: otherwise hardly any run of the graph would start."""
    if chance.random() < 0.03:
        return chance.choice(("success", "failure", "always"))
    return chance.choice([on for on in ("success", "failure", "always") if meets(outcome, on)])
