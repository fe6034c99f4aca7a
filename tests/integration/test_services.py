"""What a worker does besides executing runs: it publishes, and rings for RQ; a sweeper does only the latter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook

from holdfast import Client
from tests.integration.outbox_support import Receiver, receiving
from tests.integration.rq_support import RqStage
from tests.integration.worker_support import eventually

pytestmark = pytest.mark.redis

WITHIN = 60.0


@pytest.fixture
def stage(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[RqStage]:
    one = RqStage(database_url, redis_url, tmp_path)
    yield one
    one.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


def start(stage: RqStage, *arguments: str, **environment: str) -> None:
    command = [sys.executable, "-m", "holdfast", *arguments]
    with (stage.directory / "holdfast.log").open("wb") as log:
        stage.started.append(
            subprocess.Popen(command, env=stage.environment() | environment, cwd=stage.directory, stderr=log)
        )


def test_a_worker_publishes_to_streams_and_webhooks(stage: RqStage, receiver: Receiver, tmp_path: Path) -> None:
    with Client(replace(stage.settings, webhook_allow_private=True)) as client:
        client.add_subscription("stream", stream="events", statuses=["succeeded"])
        secret = client.add_subscription("hook", webhook=receiver.url).secret
    start(stage, "worker", HOLDFAST_WEBHOOK_ALLOW_PRIVATE="true")
    run = stage.submit("note", path=str(tmp_path / "said")).wait(timeout=WITHIN)
    (request,) = eventually(lambda: receiver.requests)
    Webhook(str(secret)).verify(request.body, request.headers)
    assert request.run_id == run.id
    eventually(lambda: stage.redis.xlen("events") == 1)
    (delivery,) = eventually(lambda: stage.client.deliveries("hook", status="DELIVERED"))
    assert (delivery.response_code, delivery.attempts) == (200, 1)


def test_a_sweeper_rings_for_runs_and_executes_none(stage: RqStage, tmp_path: Path) -> None:
    run = stage.submit("note", path=str(tmp_path / "said"))
    stage.client.close()
    stage.redis.flushall()
    start(stage, "sweep")
    eventually(lambda: set(stage.redis.lrange("rq:queue:default", 0, -1)) == {f"{run.id}-1".encode()})
    assert stage.said(tmp_path / "said") == []
