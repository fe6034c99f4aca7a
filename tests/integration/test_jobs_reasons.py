"""The reasons that jobs and their tasks give for their end, and that they can be retried unless they succeeded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import ops
from holdfast.cli.watching import headline
from holdfast.client import Client
from holdfast.domain.settling import Failed
from holdfast.jobs import Jobs
from holdfast.runtime.settings import Settings
from tests.integration.jobs_support import ERROR, Stage, new_run, stage

__all__ = ["stage"]


@pytest.fixture
def jobs(stage: Stage) -> Iterator[Jobs]:
    with Client(Settings(database_url=stage.url)) as client:
        yield Jobs(client)


def test_failed_job_names_the_task_that_failed_and_its_error(stage: Stage, jobs: Jobs) -> None:
    job_id = stage.job(new_run(), new_run(child_key="load"), new_run(child_key="other"))
    first, *others = stage.claim()
    stage.end([first])
    stage.fail(others)
    job = jobs.get_job(job_id)
    assert (job.status, job.failed_tasks) == ("FAILED", 2)
    assert job.reason == "2 of 3 tasks failed; the first is load (noop): ValueError: no"
    assert job.tasks[1].reason == "ValueError: no"
    assert jobs.list_jobs()[0].reason == "2 of 3 tasks failed"


def test_job_whose_task_was_cancelled_says_so_and_can_be_retried(stage: Stage, jobs: Jobs) -> None:
    job_id = stage.job(new_run(child_key="load"), new_run())
    stage.do(lambda: ops.cancel(stage.tasks(job_id)[0], "not this one"))
    stage.drain()
    job = jobs.get_job(job_id)
    assert (job.status, job.cancelled_tasks) == ("FAILED", 1)
    assert job.reason == "1 of 2 tasks was cancelled; the first is load (noop): not this one"
    assert job.tasks[0].reason == "not this one"
    assert jobs.retry_failed_tasks(job) == 1
    stage.drain()
    job = jobs.get_job(job_id)
    assert (job.status, job.reason, job.completed_tasks) == ("SUCCEEDED", None, 2)


def test_job_reason_does_not_name_tasks_that_could_not_start(stage: Stage, jobs: Jobs) -> None:
    load = new_run(child_key="load")
    job_id = stage.job(load, new_run(on=[load.id]), new_run(policy='{"critical": false}'))
    stage.fail(stage.claim())
    reason = jobs.get_job(job_id).reason
    assert reason == "2 of 3 tasks failed, 1 was cancelled; the first is load (noop): ValueError: no"


def test_job_that_was_cancelled_or_succeeded_does_not_name_failed_tasks(stage: Stage, jobs: Jobs) -> None:
    lucky = stage.job(new_run(policy='{"critical": false}'))
    stage.fail(stage.claim())
    assert (jobs.get_job(lucky).status, jobs.get_job(lucky).reason) == ("SUCCEEDED", None)
    stopped = stage.job(new_run())
    stage.stop_job(stopped)
    assert jobs.get_job(stopped).reason == "enough"


def test_job_without_tasks_ends(stage: Stage, jobs: Jobs) -> None:
    job = jobs.create_job("empty", [])
    assert jobs.get_job(job).status == "PENDING", "its creator may be about to add tasks"
    stage.rows("update holdfast.jobs set held_until = holdfast.now() where held_until is not null returning id")
    stage.do(ops.end_held_jobs)
    assert jobs.get_job(job).status == "SUCCEEDED"


def test_job_created_without_tasks_ends_after_the_tasks_added_to_it(stage: Stage, jobs: Jobs) -> None:
    job = jobs.create_job("empty", [])
    stage.add(job.id, new_run())
    stage.drain()
    stage.rows("update holdfast.jobs set held_until = holdfast.now() where held_until is not null returning id")
    stage.do(ops.end_held_jobs)
    assert (jobs.get_job(job).status, jobs.get_job(job).completed_tasks) == ("SUCCEEDED", 1)


def test_worker_of_a_task_is_known_after_the_task_has_ended(stage: Stage, jobs: Jobs) -> None:
    job_id = stage.job(new_run(), new_run())
    first, second = stage.claim()
    assert [one.worker_id for one in jobs.get_job(job_id).tasks] == [stage.worker] * 2
    stage.end([first])
    stage.fail([second])
    assert [one.worker_id for one in jobs.get_job(job_id).tasks] == [stage.worker] * 2
    assert jobs.get_task(first.run_id).worker_id == stage.worker


def test_run_with_more_attempts_than_its_policy_allows_shows_only_their_number(stage: Stage, jobs: Jobs) -> None:
    job_id = stage.job(new_run(policy='{"max_attempts": 2, "delays": [0]}'))
    (run_id,) = stage.tasks(job_id)
    for _ in range(2):
        stage.end(stage.claim(), Failed(ERROR))
    run = jobs.client.get(run_id)
    assert headline(run) == "FAILED, attempt 2 of 2"
    jobs.retry_failed_tasks(job_id)
    stage.end(stage.claim(), Failed(ERROR))
    run = jobs.client.get(run_id)
    assert headline(run) == "PENDING, attempt 3"
    assert run.record.attempts == "3"
