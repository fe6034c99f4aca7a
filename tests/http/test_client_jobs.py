"""Jobs through the HTTP clients: the calls of `Jobs` and `AsyncJobs`, on an API instead of a database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast import AsyncHttpClient, HttpClient
from holdfast.domain.errors import BadInput, ChildDiffers, ConfigurationError, JobEnded, JobNotFound
from holdfast.jobs import AsyncJobs, Jobs
from holdfast.runtime.settings import Settings
from tests.http.api_tasks import mirror
from tests.http.conftest import Server
from tests.http.manual_worker import ManualWorker

pytestmark = pytest.mark.one_server

TASKS = [{"entrypoint": mirror, "kwargs": {"n": 1}, "key": "load"}, {"entrypoint": "mirror", "depends_on": ["load"]}]


@pytest.fixture
def jobs(server: Server, settings: Settings) -> Iterator[Jobs]:
    with HttpClient(server.url, settings=settings) as client:
        yield Jobs(client)


def test_a_job_is_created_read_and_listed(jobs: Jobs) -> None:
    job = jobs.create_job("nightly", TASKS, "every night", timedelta(hours=1))
    assert (job.name, job.description, job.status, job.total_tasks) == ("nightly", "every night", "PENDING", 2)
    assert job.deadline_at is not None
    assert jobs.get_job(job.id) == job
    assert [task.kwargs for task in job.tasks] == [{"n": 1}, {}]
    assert [found.id for found in jobs.list_jobs("pending", name="nightly")] == [job.id]
    assert jobs.list_jobs("completed") == []


def test_tasks_of_a_job_are_read_over_several_pages(jobs: Jobs) -> None:
    job = jobs.create_job("large", [{"entrypoint": "mirror", "kwargs": {"n": n}} for n in range(205)])
    assert [task.kwargs["n"] for task in job.tasks] == list(range(205))


def test_a_task_is_added_once_for_each_key(jobs: Jobs) -> None:
    job = jobs.create_job("grows", TASKS)
    added = jobs.add_task_to_job(job, mirror, {"n": 2}, key="more", depends_on=["load"])
    assert added.job_id == job.id
    assert jobs.add_task_to_job(job, mirror, {"n": 2}, key="more", depends_on=["load"]) == added
    with pytest.raises(ChildDiffers):
        jobs.add_task_to_job(job, mirror, {"n": 3}, key="more", depends_on=["load"])
    assert jobs.get_job(job).total_tasks == 3


def test_the_failed_tasks_of_a_job_are_retried(jobs: Jobs, manual_worker: ManualWorker) -> None:
    job = jobs.create_job("fails", TASKS)
    manual_worker.fail(manual_worker.claim(job.tasks[0].id), "no luck")
    assert jobs.wait_for_job(job, timeout=10).status == "FAILED"
    assert jobs.retry_failed_tasks(job) == 2
    manual_worker.run(job.tasks[0].id, {"n": 7})
    assert jobs.get_job(job).completed_tasks == 1
    assert jobs.get_job(job).tasks[0].result() == {"n": 7}


def test_a_job_is_cancelled_with_its_reason(jobs: Jobs) -> None:
    job = jobs.create_job("stops", TASKS)
    stopped = jobs.cancel_job(job, reason="not needed")
    assert (stopped.status, stopped.reason) == ("CANCELLED", "not needed")
    with pytest.raises(JobEnded):
        jobs.add_task_to_job(job, mirror)


def test_errors_are_the_same_as_those_of_other_clients(jobs: Jobs) -> None:
    with pytest.raises(JobNotFound):
        jobs.get_job("x")
    with pytest.raises(JobNotFound):
        jobs.cancel_job("01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b")
    with pytest.raises(BadInput) as wrong:
        jobs.create_job("wrong", [{"entrypoint": "mirror"}, {"entrypoint": "nope"}])
    assert [problem.pointer for problem in wrong.value.problems] == ["/tasks/1/entrypoint"]
    with pytest.raises(BadInput, match="odd"):
        jobs.list_jobs("odd")


def test_a_call_that_needs_a_database_is_refused(jobs: Jobs) -> None:
    with pytest.raises(ConfigurationError, match="map_dataset needs a database"):
        jobs.map(mirror, range(10))


async def test_jobs_api_works_on_the_asynchronous_http_client(
    server: Server, settings: Settings, manual_worker: ManualWorker
) -> None:
    async with AsyncHttpClient(server.url, settings=settings) as client:
        jobs = AsyncJobs(client)
        job = await jobs.create_job("awaited", TASKS[:1])
        assert [task.kwargs for task in job.tasks] == [{"n": 1}]
        manual_worker.run(job.tasks[0].id, 5)
        ended = await jobs.wait_for_job(job, timeout=10)
        assert (ended.status, ended.tasks[0].result()) == ("SUCCEEDED", 5)
        assert await jobs.list_jobs("completed") == [job]
        with pytest.raises(JobEnded):
            await jobs.cancel_job(job)
