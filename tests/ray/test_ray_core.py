"""Runs in Ray actors: the worker holds the leases and settles, the actors execute."""

from __future__ import annotations

import pytest

from tests.integration.worker_support import eventually
from tests.ray.stage import WAIT_SECONDS, RayStage

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


def test_runs_are_executed_by_actors(stage: RayStage) -> None:
    runs = [stage.submit("ray.note", path=str(stage.file("note")), text=f"run {number}") for number in range(40)]
    stage.worker("ray_core")
    assert [stage.ended(run) for run in runs] == ["SUCCEEDED"] * 40
    assert sorted(stage.lines("note")) == sorted(f"run {number}" for number in range(40))
    (attempt,) = runs[0].attempts()
    assert attempt.executor == "ray_core"


def test_the_runs_of_a_killed_worker_are_lost_and_executed_again(stage: RayStage) -> None:
    run = stage.submit("ray.wait", path=str(stage.file("began")), until=str(stage.file("go")))
    short = {"HOLDFAST_LEASE_SECONDS": "9", "HOLDFAST_RENEW_SECONDS": "2"}
    first = stage.worker("ray_core", slots=1, **short)
    eventually(lambda: stage.lines("began"), WAIT_SECONDS)
    stage.kill(first)
    stage.worker("ray_core", slots=1, **short)
    eventually(lambda: len(stage.lines("began")) == 2, WAIT_SECONDS)
    stage.file("go").touch()
    assert stage.ended(run) == "SUCCEEDED"
    assert [attempt.status for attempt in run.attempts()] == ["LOST", "SUCCEEDED"]
