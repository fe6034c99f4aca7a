"""An attacker who can write to Redis can run nothing, break nothing, and learn nothing."""

from __future__ import annotations

import json
import os
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rq import Queue

from tests.integration.rq_support import GUARDED, ORDINARY, RqStage, ended
from tests.integration.worker_support import eventually

pytestmark = pytest.mark.redis

WITHIN = 60.0
FUNCTION = "holdfast.rq.execute_run"


@pytest.fixture
def stage(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[RqStage]:
    one = RqStage(database_url, redis_url, tmp_path)
    yield one
    one.close()


class Payload:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def plant(stage: RqStage, job_id: str, data: bytes, **fields: Any) -> None:
    """Put a message into the queue as an attacker would."""
    shape = {"status": "queued", "origin": "default", "timeout": 180, "data": data, **fields}
    stage.redis.hset(f"rq:job:{job_id}", mapping=shape)
    stage.redis.rpush("rq:queue:default", job_id)


def call(function: str, *args: Any, **kwargs: Any) -> bytes:
    return zlib.compress(json.dumps([function, None, args, kwargs]).encode())


def drained(stage: RqStage) -> None:
    """Return when all planted messages have been processed, and check that the worker still works."""
    run = stage.submit("note", path=str(stage.directory / "after"))
    assert run.wait(timeout=WITHIN).result() == 1
    eventually(lambda: stage.redis.llen("rq:queue:default") == 0)


@pytest.mark.parametrize("options", [ORDINARY, GUARDED], ids=["ordinary", "guarded"])
def test_a_pickle_is_never_read(stage: RqStage, tmp_path: Path, options: tuple[str, ...]) -> None:
    trap = tmp_path / "unpickled"
    plant(stage, "a", zlib.compress(pickle.dumps((FUNCTION, None, (Payload(trap),), {}))))
    plant(stage, "b", pickle.dumps(Payload(trap)))
    plant(stage, "c", call(FUNCTION, "x"), meta=pickle.dumps(Payload(trap)), result=pickle.dumps(Payload(trap)))
    Queue("default", connection=stage.redis).enqueue("os.mkdir", str(trap))  # as RQ itself pickles it
    stage.rq_worker(*options)
    drained(stage)
    assert not trap.exists()


def test_no_other_function_callback_or_url_is_called(stage: RqStage, tmp_path: Path) -> None:
    trap = tmp_path / "called"
    run = stage.submit("note", path=str(tmp_path / "said"))
    stage.redis.flushall()
    plant(stage, "a", call("os.mkdir", str(trap)))
    plant(stage, "b", call("subprocess.check_call", ["mkdir", str(trap)]))
    plant(stage, "c", call(FUNCTION, run.id), success_callback_name="tests.integration.rq_tasks.say")
    plant(stage, "d", call(FUNCTION, run.id), failure_callback_name="os.mkdir", stopped_callback_name="os.mkdir")
    plant(
        stage,
        "e",
        call(FUNCTION, run.id),
        webhooks=json.dumps([{"url": "http://127.0.0.1:1/", "statuses": ["finished"]}]),
    )
    plant(stage, "f", call(FUNCTION, run.id, "and more"))
    plant(stage, "g", call(FUNCTION, run_id=run.id))
    plant(stage, "h", zlib.compress(json.dumps(["mkdir", "os", [str(trap)], {}]).encode()))
    plant(stage, "i", call("holdfast.rq.execution.execute", run.id))
    stage.rq_worker(*GUARDED)
    drained(stage)
    assert not trap.exists()
    assert run.wait(timeout=WITHIN).result() == 1
    assert stage.said(tmp_path / "said") == ["1"]


def test_unreadable_message_does_not_stop_the_worker(stage: RqStage, tmp_path: Path) -> None:
    plant(stage, "a", b"\x00\xff\xfe")
    plant(stage, "b", zlib.compress(b"[" * 100_000))
    plant(stage, "c", zlib.compress(b"null"))
    plant(stage, "d", call(FUNCTION, "x"), timeout="soon")
    plant(stage, "e", call(FUNCTION, "x"), status="flying")
    plant(stage, "f", call(FUNCTION, "x"), created_at="yesterday", result_ttl="for ever", retries_left="all")
    plant(stage, "g", zlib.compress(b'{"a": 1}'))
    stage.redis.rpush("rq:queue:default", "no-such-job", "a:b:c", "")
    stage.rq_worker(*GUARDED)
    drained(stage)


def test_old_messages_in_any_order_do_nothing(stage: RqStage, tmp_path: Path) -> None:
    """Messages for past and future attempts, and for ended runs."""
    stage.rq_worker(*GUARDED)
    done = stage.submit("note", path=str(tmp_path / "done")).wait(timeout=WITHIN)
    cancelled = stage.submit("note", path=str(tmp_path / "cancelled"))
    cancelled.cancel()
    before = len(stage.client.workers())
    for run in (done, cancelled):
        for number in (7, 1, 3, 2, 1):
            plant(stage, f"{run.id}-{number}", call(FUNCTION, run.id))
    drained(stage)
    assert stage.said(tmp_path / "done") == ["1"]
    assert ended(done) == [(1, "SUCCEEDED", None)]
    assert len(stage.client.workers()) <= before + 2, "none of them so much as entered a worker"
