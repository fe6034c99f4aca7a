"""Parts of a Ray cluster die: their attempts are LOST and count, and the runs are retried and end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.worker_support import eventually
from tests.ray.conftest import new_head, use_token
from tests.ray.head import Head, kill_session
from tests.ray.stage import WAIT_SECONDS, RayStage
from tests.ray.stand_in import StandIn

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

SHORT = {"HOLDFAST_LEASE_SECONDS": "6", "HOLDFAST_RENEW_SECONDS": "1.5", "HOLDFAST_GRACE_SECONDS": "2"}


def test_a_run_is_lost_with_its_actor_and_retried_in_another(stage: RayStage) -> None:
    run = stage.submit("ray.die_once", path=str(stage.file("began")))
    stage.worker("ray_core", slots=1)
    assert stage.ended(run) == "SUCCEEDED"
    first, second = run.attempts()
    assert first.error is not None
    assert (first.status, first.reason, second.status) == ("LOST", "crash", "SUCCEEDED")
    assert first.error["class"] == "ActorDiedError"


def test_a_run_is_lost_with_its_node_and_retried_on_the_next(stage: RayStage) -> None:
    assert isinstance(stage.head, Head)
    run = stage.submit("ray.on_second", path=str(stage.file("began")), until=str(stage.file("go")))
    stage.worker("ray_core", slots=1)
    first_node = stage.head.second_node()
    try:
        eventually(lambda: stage.lines("began"), WAIT_SECONDS)
        where = eventually(lambda: run.attempts()[0].ray_node_id, WAIT_SECONDS)
    finally:
        kill_session(first_node)
    eventually(lambda: len(run.attempts()) == 2 or run.refresh().status == "PENDING", WAIT_SECONDS)
    second_node = stage.head.second_node()
    try:
        eventually(lambda: len(stage.lines("began")) == 2, WAIT_SECONDS)
        again = eventually(lambda: run.attempts()[1].ray_node_id, WAIT_SECONDS)
        stage.file("go").touch()
        assert stage.ended(run) == "SUCCEEDED"
    finally:
        kill_session(second_node)
    assert where != again
    assert [attempt.status for attempt in run.attempts()] == ["LOST", "SUCCEEDED"]


@pytest.fixture
def own_head(node_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Head]]:
    """A head for this test only, which it may kill and replace."""
    heads = [new_head(node_settings)]
    use_token(monkeypatch, heads[0])
    yield heads
    for head in heads:
        head.close()


def test_a_worker_survives_its_head_and_retries_the_lost_run_on_the_next(
    own_head: list[Head], node_settings: dict[str, str], tmp_path: Path
) -> None:
    stage = RayStage(own_head[0], node_settings, tmp_path)
    try:
        run = stage.submit("ray.wait", path=str(stage.file("began")), until=str(stage.file("go")))
        worker = stage.worker("ray_core", slots=1)
        eventually(lambda: stage.lines("began"), WAIT_SECONDS)
        own_head[0].kill()
        eventually(lambda: run.attempts()[0].status == "LOST", WAIT_SECONDS)
        own_head.append(new_head(node_settings, like=own_head[0]))
        eventually(lambda: len(stage.lines("began")) == 2, WAIT_SECONDS)
        stage.file("go").touch()
        assert stage.ended(run) == "SUCCEEDED"
        assert worker.poll() is None
        # A head that hangs does not prevent the worker from stopping.
        own_head[1].signal_gcs(signal.SIGSTOP)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        own_head[-1].signal_gcs(signal.SIGCONT)
        stage.close()


def test_a_job_that_the_restarted_head_does_not_know_is_lost_and_submitted_again(
    stand_in: StandIn, node_settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_token(monkeypatch, stand_in)
    stage = RayStage(stand_in, node_settings, tmp_path)
    try:
        stand_in.holding = True
        run = stage.submit("ray.wait", path=str(stage.file("began")), until=str(stage.file("go")))
        stage.worker("ray_job")
        eventually(lambda: stand_in.submissions, WAIT_SECONDS)
        stand_in.forget()
        eventually(lambda: len(stand_in.submissions) == 2, WAIT_SECONDS)
        stand_in.release()
        stage.file("go").touch()
        assert stage.ended(run) == "SUCCEEDED"
        first, second = run.attempts()
        assert first.error is not None
        assert (first.status, first.error["class"], second.status) == ("LOST", "RayJobLost", "SUCCEEDED")
    finally:
        stage.close()


def test_attempt_of_a_dead_job_is_lost_when_its_lease_has_expired(
    node_settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = {**node_settings, **SHORT}
    stand_in = StandIn(node)
    use_token(monkeypatch, stand_in)
    stage = RayStage(stand_in, node, tmp_path)
    try:
        run = stage.submit("ray.wait", path=str(stage.file("began")), until=str(stage.file("go")))
        stage.worker("ray_job")
        eventually(lambda: stage.lines("began"), WAIT_SECONDS)
        stand_in.kill_jobs()
        stand_in.forget()
        eventually(lambda: len(stage.lines("began")) == 2, WAIT_SECONDS)
        stage.file("go").touch()
        assert stage.ended(run) == "SUCCEEDED"
        assert [attempt.status for attempt in run.attempts()] == ["LOST", "SUCCEEDED"]
    finally:
        stage.close()
        stand_in.close()
