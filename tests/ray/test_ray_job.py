"""Runs as Ray jobs: the job takes over the lease, so the worker that submitted it may die."""

from __future__ import annotations

import pytest

from tests.integration.worker_support import eventually
from tests.ray.stage import WAIT_SECONDS, RayStage

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


def test_run_is_executed_by_a_job_that_takes_it_over(quick_stage: RayStage) -> None:
    run = quick_stage.submit("ray.note", path=str(quick_stage.file("note")), text="hello")
    quick_stage.worker("ray_job")
    assert quick_stage.ended(run) == "SUCCEEDED"
    assert run.result()["text"] == "hello"
    assert quick_stage.lines("note") == ["hello"]
    assert quick_stage.story(run) == ["SUBMITTED", "CLAIMED", "TAKEN_OVER", "SUCCEEDED"]
    (attempt,) = run.attempts()
    assert attempt.executor == "ray_job"
    assert attempt.ray_submission_id is not None
    assert attempt.ray_submission_id.startswith(f"holdfast-{run.id}-1-")
    assert attempt.ray_address == quick_stage.head.address
    assert attempt.claimed_by not in (None, attempt.worker_id)


def test_run_continues_when_the_worker_that_submitted_it_is_killed(jobs_stage: RayStage) -> None:
    run = jobs_stage.submit("ray.wait", path=str(jobs_stage.file("began")), until=str(jobs_stage.file("go")))
    worker = jobs_stage.worker("ray_job")
    eventually(lambda: jobs_stage.lines("began"), WAIT_SECONDS)
    jobs_stage.kill(worker)
    jobs_stage.file("go").touch()
    assert jobs_stage.ended(run) == "SUCCEEDED"
    assert jobs_stage.lines("began") == ["attempt 1"]
    assert jobs_stage.story(run) == ["SUBMITTED", "CLAIMED", "TAKEN_OVER", "SUCCEEDED"]


def test_a_cancelled_run_is_stopped_on_ray(quick_stage: RayStage) -> None:
    run = quick_stage.submit("ray.wait", path=str(quick_stage.file("began")), until=str(quick_stage.file("never")))
    quick_stage.worker("ray_job")
    eventually(lambda: quick_stage.lines("began"), WAIT_SECONDS)
    run.cancel("enough")
    assert quick_stage.ended(run) == "CANCELLED"
    assert quick_stage.lines("began") == ["attempt 1"]


def test_a_failed_attempt_is_retried_as_another_job(quick_stage: RayStage) -> None:
    run = quick_stage.submit("ray.break", path=str(quick_stage.file("began")))
    quick_stage.worker("ray_job")
    assert quick_stage.ended(run) == "SUCCEEDED"
    assert quick_stage.lines("began") == ["attempt 1", "attempt 2"]
    first, second = run.attempts()
    assert first.error is not None
    assert first.error["class"] == "KeyError"
    assert first.ray_submission_id != second.ray_submission_id


def test_an_entrypoint_that_is_started_again_is_refused(jobs_stage: RayStage) -> None:
    run = jobs_stage.submit("ray.wait", path=str(jobs_stage.file("began")), until=str(jobs_stage.file("go")))
    jobs_stage.worker("ray_job")
    eventually(lambda: jobs_stage.lines("began"), WAIT_SECONDS)
    (attempt,) = run.attempts()
    again = f"exec python -m holdfast.rayjob {run.id} 1 {attempt.claimed_by}"
    jobs_stage.head.jobs.submit(f"again-{run.id}", again, {})
    eventually(lambda: "FENCED" in jobs_stage.story(run), WAIT_SECONDS)
    jobs_stage.file("go").touch()
    assert jobs_stage.ended(run) == "SUCCEEDED"
    assert jobs_stage.lines("began") == ["attempt 1"]
    refusal = next(event for event in run.events() if event.type == "FENCED")
    assert refusal.reason == f"take-over refused: worker {attempt.worker_id} took it over before"
