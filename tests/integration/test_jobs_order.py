"""Tasks of a job are listed and run in the order of their creation, however they were created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from holdfast import task
from holdfast.client import Client
from holdfast.jobs import Jobs, View
from holdfast.runtime.settings import Settings
from tests.integration.jobs_support import Stage, new_run, stage

__all__ = ["stage"]


@task("order.leaf")
def leaf(name: str) -> None: ...


@task("order.slice")
def slice_(view: View, name: str) -> None: ...


@task("order.join")
def join(results: Sequence[Any], name: str) -> None: ...


@pytest.fixture
def jobs(stage: Stage) -> Iterator[Jobs]:
    with Client(Settings(database_url=stage.url)) as client:
        yield Jobs(client)


def made(jobs: Jobs) -> tuple[str, list[str]]:
    """A job with tasks of every kind, and their names in the order of creation."""
    leaves = [{"entrypoint": "order.leaf", "kwargs": {"name": f"first {n}"}} for n in range(3)]
    job = jobs.create_job("ordered", leaves)
    names = [f"first {n}" for n in range(3)]
    for n in range(12):
        key = {"key": f"key {n}"} if n % 3 else {}
        jobs.add_task_to_job(job.id, "order.leaf", {"name": f"added {n}"}, **key)
        names.append(f"added {n}")
        if n % 4 == 0:
            handle = jobs.map("order.slice", range(6), 2, options={"job_id": job.id}, name=f"slice {n}")
            names += [f"slice {n}"] * 3
            jobs.add_task_to_job(job.id, "order.leaf", {"name": f"between {n}"})
            names.append(f"between {n}")
            jobs.collect(handle, into="order.join", name=f"join {n}")
            names.append(f"join {n}")
    return job.id, names


def test_tasks_of_a_job_are_listed_in_order_of_creation(jobs: Jobs) -> None:
    job_id, names = made(jobs)
    tasks = list(jobs.get_job(job_id).tasks)
    assert [one.kwargs["name"] for one in tasks] == names
    assert [one.created_at for one in tasks] == sorted(one.created_at for one in tasks)


def test_tasks_of_a_job_run_in_order_of_creation(stage: Stage, jobs: Jobs) -> None:
    job_id, names = made(jobs)
    stage.job(new_run())
    order = {one.id: one.kwargs["name"] for one in jobs.get_job(job_id).tasks}
    ran = [order.get(run_id, "young") for run_id in stage.drain()]
    joins = [name for name in ran if name.startswith("join")]
    assert joins == [name for name in names if name.startswith("join")], "joins run once their maps have ended"
    assert [name for name in ran if name not in joins] == [*(name for name in names if name not in joins), "young"]


def test_thousand_slices_keep_their_order_among_tasks_added_later(jobs: Jobs) -> None:
    job = jobs.create_job("large", [{"entrypoint": "order.leaf", "kwargs": {"name": "first"}}])
    handle = jobs.map("order.slice", range(1000), 1, options={"job_id": job.id}, name="slice")
    jobs.add_task_to_job(job.id, "order.leaf", {"name": "last"})
    tasks = list(jobs.get_job(job.id).tasks)
    assert [one.id for one in tasks[1:-1]] == handle.task_ids
    assert [one.kwargs["view"]["$view"]["offset"] for one in tasks[1:-1]] == list(range(1000))
    assert (tasks[0].kwargs["name"], tasks[-1].kwargs["name"]) == ("first", "last")
