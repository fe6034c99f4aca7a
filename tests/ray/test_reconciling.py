"""Every worker supervises all jobs: it copies their logs, and stops jobs that hang or whose attempt has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Run
from tests.integration.worker_support import eventually
from tests.ray.conftest import use_token
from tests.ray.stage import WAIT_SECONDS, RayStage
from tests.ray.stand_in import StandIn

pytestmark = pytest.mark.timeout(300)

# Longer than it takes until another worker checks a job.
SHORT = {"HOLDFAST_LEASE_SECONDS": "12", "HOLDFAST_RENEW_SECONDS": "3", "HOLDFAST_GRACE_SECONDS": "2"}


@pytest.fixture
def ray(node_settings: dict[str, str]) -> Iterator[StandIn]:
    stand_in = StandIn({**node_settings, **SHORT})
    yield stand_in
    stand_in.close()


@pytest.fixture
def alone(
    ray: StandIn, node_settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RayStage]:
    """A stage with short leases, on a stand-in for Ray's job server."""
    use_token(monkeypatch, ray)
    stage = RayStage(ray, {**node_settings, **SHORT}, tmp_path)
    yield stage
    stage.close()


def begun_without_its_worker(stage: RayStage) -> Run:
    """A run whose job continues after the worker that submitted it was killed."""
    run = stage.submit("ray.wait", path=str(stage.file("began")), until=str(stage.file("go")))
    worker = stage.worker("ray_job")
    eventually(lambda: stage.lines("began"), WAIT_SECONDS)
    stage.kill(worker)
    return run


def test_another_worker_copies_the_log_of_a_job_while_it_runs(alone: RayStage) -> None:
    run = begun_without_its_worker(alone)
    alone.worker("ray_job")
    alone.worker("ray_job")

    def copied() -> list[str]:
        return [line.message for line in alone.client.logs(run) if "printed by attempt 1" in line.message]

    assert len(eventually(copied, WAIT_SECONDS)) == 1
    assert run.refresh().status == "RUNNING"
    alone.file("go").touch()
    assert alone.ended(run) == "SUCCEEDED"
    assert len(copied()) == 1


def test_another_worker_ends_a_cancelled_job_that_hangs(alone: RayStage, ray: StandIn) -> None:
    run = begun_without_its_worker(alone)
    (job,) = ray.freeze_jobs()
    run.cancel("enough")
    alone.worker("ray_job")
    assert alone.ended(run) == "CANCELLED"
    eventually(lambda: job.poll() is not None, WAIT_SECONDS)


def test_another_worker_stops_a_job_that_still_waits_when_its_attempt_was_lost(alone: RayStage, ray: StandIn) -> None:
    ray.holding = True
    run = alone.submit("ray.wait", path=str(alone.file("began")), until=str(alone.file("go")))
    worker = alone.worker("ray_job")
    eventually(lambda: ray.submissions, WAIT_SECONDS)
    alone.kill(worker)
    first = ray.submissions[0]["submission_id"]
    alone.worker("ray_job")
    eventually(lambda: first in ray.stops, WAIT_SECONDS)
    assert run.attempts()[0].status == "LOST"
    ray.release()
    alone.file("go").touch()
    assert alone.ended(run) == "SUCCEEDED"
    assert alone.lines("began") == ["attempt 2"]


def test_state_of_a_dead_job_in_ray_is_in_the_log_of_its_run(alone: RayStage, ray: StandIn) -> None:
    run = begun_without_its_worker(alone)
    alone.worker("ray_job")
    eventually(lambda: alone.client.logs(run), WAIT_SECONDS)  # the worker checks the job before its lease expires
    ray.kill_jobs()
    found = eventually(
        lambda: [line for line in alone.client.logs(run) if "is gone: Ray says FAILED" in line.message], WAIT_SECONDS
    )
    assert (found[0].level, found[0].attempt) == ("error", 1)
    alone.file("go").touch()
    assert alone.ended(run) == "SUCCEEDED"
    assert [attempt.status for attempt in run.attempts()] == ["LOST", "SUCCEEDED"]
