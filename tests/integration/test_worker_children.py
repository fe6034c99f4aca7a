"""How runs are spread over child processes, and how hints reach them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.assembly.worker import listen_to
from holdfast.domain.execution import ChildLimits
from holdfast.executors import spawning
from holdfast.executors.process import ProcessExecutor
from holdfast.worker import supervisor
from tests.integration.wire import Wire
from tests.integration.worker_support import Stage, eventually


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path)
    yield stage
    stage.close()


def done(stage: Stage, task: str) -> int:
    [(count,)] = stage.query(
        "select count(*) from holdfast.attempts join holdfast.runs on runs.id = run_id where task = %s", task
    )
    return int(count)


def test_tiny_runs_waiting_behind_a_long_run_are_moved(stage: Stage) -> None:
    with stage.worker(slots=2):
        stage.client.submit_many("moody", [{"value": n} for n in range(300)])
        eventually(lambda: done(stage, "moody") == 300)
        batch = [{"value": 0, "until": str(stage.file("go"))}, *({"value": n} for n in range(1, 100))]
        long, *tiny = stage.client.submit_many("moody", batch)
        assert [stage.ended(run).result() for run in tiny] == list(range(1, 100))
        assert not stage.client.get(long).status.final
        stage.file("go").touch()
        stage.ended(long)
    assert stage.client.get(long).attempt_count == 1


def test_crash_among_tiny_runs_affects_only_its_own_attempt(stage: Stage) -> None:
    with stage.worker(slots=1):
        stage.client.submit_many("echo", [{"value": n} for n in range(300)])
        eventually(lambda: done(stage, "echo") == 300)
        poison = stage.submit("leave_once", code=9)
        innocent = stage.client.submit_many("echo", [{"value": n} for n in range(100)])
        assert [stage.ended(run).result() for run in innocent] == list(range(100))
        assert stage.ended(poison).attempt_count == 2
    assert {stage.client.get(run).attempt_count for run in innocent} == {1}


def test_a_child_that_cannot_be_started_is_started_later(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    starting = spawning.Spawned._start
    refused = []

    def refuse(channel: int, mark: int) -> Any:
        if len(refused) < 2:
            refused.append(channel)
            raise OSError(12, "Cannot allocate memory")
        return starting(channel, mark)

    with stage.worker(slots=1):
        assert stage.ended(stage.submit("echo", value=1)).result() == 1
        monkeypatch.setattr(spawning.Spawned, "_start", staticmethod(refuse))
        run = stage.submit("leave_once", code=3)
        assert stage.ended(run).attempt_count == 2
    assert len(refused) == 2


def test_child_is_replaced_after_its_maximum_number_of_runs(stage: Stage) -> None:
    executor = ProcessExecutor(slots=1, limits=ChildLimits(runs=5))
    with stage.worker(executor=executor):
        pids = [stage.ended(stage.submit("pid")).result() for _ in range(12)]
    assert len(set(pids)) > 1


def test_worker_counts_its_runs(stage: Stage) -> None:
    with stage.worker("inline"):
        good = stage.submit("echo")
        bad = stage.submit("fatal")
        stage.ended(good)
        stage.ended(bad)
    assert stage.query("select tasks_completed, tasks_failed from holdfast.workers") == [(1, 1)]


def test_cancel_reaches_the_worker_by_its_hint(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "WATCH_EVERY", 1e6)
    run = stage.submit("patient", started=str(stage.file("started")))
    with stage.worker(renew_every=1000.0, lease=3000.0) as worker:
        eventually(lambda: worker.options.listener.live)
        stage.said("started")
        run.cancel()
        stage.ended(run)


def test_ring_reaches_the_worker_without_a_poll(stage: Stage) -> None:
    with stage.worker(poll_every_listening=1e6, rescue_every=1e6, lease=1e7) as worker:
        eventually(lambda: worker.options.listener.live)
        for number in range(20):
            assert stage.ended(stage.submit("echo", value=number)).result() == number


def test_disconnected_listener_receives_hints_again(stage: Stage, database_url: str) -> None:
    wire = Wire(database_url)
    listener = listen_to(wire.url)
    with stage.worker(poll_every_listening=1e6, poll_every=1e6, rescue_every=1e6, lease=1e7, listener=listener):
        eventually(lambda: listener.live)
        wire.cut()
        eventually(lambda: not listener.live)
        wire.mend()
        eventually(lambda: listener.live)
        assert stage.ended(stage.submit("echo", value=1)).result() == 1
    wire.close()
