"""A map has the same options as a task: they are stored with every slice, including the start time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast.jobs import sync
from tests.integration.jobs_api_support import ended, stage, worker
from tests.integration.worker_support import Stage

__all__ = ["stage", "worker"]

OPTIONS = {
    "queue": "models",
    "priority": 7,
    "tags": ["nightly"],
    "max_retries": 4,
    "timeout": 17,
    "critical": False,
}
STORED = """
    select runs.queue, priority, tags, policy::text, run_after, run_after - runs.created_at, waiting.reason,
           waiting.due_at = run_after, waiting.rank_at = jobs.created_at, waiting.ord, waiting.map_id is not null
    from holdfast.runs join holdfast.jobs on jobs.id = runs.job_id
    left join holdfast.waiting on waiting.run_id = runs.id
    where runs.job_id = %s
"""


@pytest.mark.parametrize("run_after", [datetime(2100, 1, 1, tzinfo=UTC), timedelta(hours=1)])
def test_slices_of_a_map_are_stored_with_every_option_of_a_task(
    stage: Stage, database_url: str, run_after: datetime | timedelta
) -> None:
    options: dict[str, Any] = OPTIONS | {"run_after": run_after}
    job = sync.create_job("same", [{"entrypoint": "job.square", "kwargs": {"view": {"$view": {}}}, **options}])
    handle = sync.map("job.square", range(30), chunk_size=10, options=options)
    with psycopg.connect(database_url) as connection:
        (task,) = connection.execute(STORED, [job.id]).fetchall()
        slices = connection.execute(STORED, [handle.job_id]).fetchall()
    # Either the stored time or its difference from the creation time is the same for both.
    other = 5 if isinstance(run_after, datetime) else 4
    task, *slices = [one[:other] + one[other + 1 :] for one in (task, *slices)]
    assert task[4] == run_after
    assert slices == [(*task[:-1], True)] * 3


@pytest.mark.usefixtures("worker")
def test_slices_start_when_they_are_due_and_the_map_is_collected_then(stage: Stage) -> None:
    handle = sync.map("job.square", range(30), chunk_size=10, options={"run_after": timedelta(seconds=0.3)})
    past = {"run_after": datetime(2020, 1, 1, tzinfo=UTC), "job_id": handle.job_id}
    sync.map("job.square", range(20), chunk_size=10, options=past)
    join = sync.collect(handle, into="job.total")
    job = ended(handle.job_id)
    assert (job.status, job.total_tasks) == ("SUCCEEDED", 6)
    assert sync.get_task(join).result()["sum"] == sum(n * n for n in range(30))
    for one in job.tasks:
        if one.entrypoint == "job.square":
            assert one.started_at >= one.record.run_after
