"""Ordinary `rq worker` processes execute runs: each once, under a lease, whatever happens to Redis."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from holdfast import RunCancelled
from holdfast.domain.doorbell import Ring
from holdfast.doorbells.rq import RunRinger
from holdfast.drivers.psycopg import OwnConnection
from holdfast.drivers.sessions import SWEEP
from holdfast.processes.family import alive
from holdfast.rq import execute_run
from holdfast.runtime.rq_sweeper import Sweeper
from tests.integration.redis_support import RedisServer
from tests.integration.rq_support import GUARDED, ORDINARY, RqStage, ended
from tests.integration.worker_support import eventually

pytestmark = pytest.mark.redis

WITHIN = 60.0


@pytest.fixture
def stage(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[RqStage]:
    one = RqStage(database_url, redis_url, tmp_path)
    yield one
    one.close()


def test_submit_sends_a_message_that_contains_only_the_id(stage: RqStage, tmp_path: Path) -> None:
    run = stage.submit("note", path=str(tmp_path / "secret"))
    assert set(stage.redis.lrange("rq:queue:default", 0, -1)) == {f"{run.id}-1".encode()}
    assert stage.message(f"{run.id}-1") == ["holdfast.rq.execute_run", None, [run.id], {}]
    everything = b"".join(
        part for key in stage.redis.keys("rq:job:*") for pair in stage.redis.hgetall(key).items() for part in pair
    )
    assert b"secret" not in everything


def test_scheduled_run_has_no_message_yet(stage: RqStage, tmp_path: Path) -> None:
    from datetime import timedelta

    stage.client.submit("note", {"path": str(tmp_path / "x")}, run_after=timedelta(hours=1))
    assert stage.redis.llen("rq:queue:default") == 0


@pytest.mark.parametrize("options", [(), GUARDED], ids=["ordinary", "guarded"])
def test_rq_worker_executes_the_run(stage: RqStage, tmp_path: Path, options: tuple[str, ...]) -> None:
    stage.rq_worker(*options)
    run = stage.submit("note", path=str(tmp_path / "said")).wait(timeout=WITHIN)
    assert run.result() == 1
    assert stage.said(tmp_path / "said") == ["1"]
    (attempt,) = run.attempts()
    (worker,) = [one for one in stage.client.workers() if one.id == attempt.worker_id]
    assert worker.name == f"{worker.hostname}:{worker.pid}"
    eventually(lambda: stage.redis.keys("rq:job:*") == [])


def test_duplicate_messages_for_two_workers_cause_one_execution(stage: RqStage, tmp_path: Path) -> None:
    runs = [stage.submit("note", path=str(tmp_path / f"said-{number}")) for number in range(3)]
    for run in runs:
        for _ in range(3):
            stage.redis.rpush("rq:queue:default", f"{run.id}-1")
    stage.rq_worker()
    stage.rq_worker()
    for number, run in enumerate(runs):
        assert run.wait(timeout=WITHIN).result() == 1
        assert stage.said(tmp_path / f"said-{number}") == ["1"]
    eventually(lambda: stage.redis.llen("rq:queue:default") == 0)


def test_run_of_a_killed_work_horse_is_finished_by_another_worker(stage: RqStage, tmp_path: Path) -> None:
    stage.rq_worker()
    stage.rq_worker()
    run = stage.submit("hold_first", path=str(tmp_path / "said"))
    horse = stage.horse_of(run)
    (line,) = eventually(lambda: stage.said(tmp_path / "said"))
    stage.kill([horse])
    eventually(lambda: not alive([int(line.split()[1])]))  # the child that ran the task was killed too
    assert run.wait(timeout=WITHIN).result() == 2
    assert [attempt[:2] for attempt in ended(run)] == [(1, "LOST"), (2, "SUCCEEDED")]


def test_work_horse_of_a_killed_rq_worker_exits(stage: RqStage, tmp_path: Path) -> None:
    first = stage.rq_worker()
    run = stage.submit("hold_first", path=str(tmp_path / "said"))
    horse = stage.horse_of(run)
    eventually(lambda: stage.said(tmp_path / "said"))
    stage.rq_worker()
    first.kill()
    first.wait()
    eventually(lambda: not alive([horse]))
    assert run.wait(timeout=WITHIN).result() == 2
    assert [attempt[:2] for attempt in ended(run)] == [(1, "LOST"), (2, "SUCCEEDED")]


def test_flushed_message_is_sent_again(stage: RqStage, tmp_path: Path) -> None:
    run = stage.submit("note", path=str(tmp_path / "said"))
    stage.redis.flushall()
    stage.rq_worker()
    assert run.wait(timeout=WITHIN).result() == 1


def test_flushing_redis_during_a_run_loses_nothing(stage: RqStage, tmp_path: Path) -> None:
    stage.rq_worker()
    gate = tmp_path / "gate"
    run = stage.submit("hold_until", path=str(tmp_path / "said"), gate=str(gate))
    stage.horse_of(run)
    stage.redis.flushall()
    gate.touch()
    assert run.wait(timeout=WITHIN).result() == 1
    again = stage.submit("note", path=str(tmp_path / "again"))
    assert again.wait(timeout=WITHIN).result() == 1


def test_a_failed_attempt_is_retried_without_any_other_worker(stage: RqStage, tmp_path: Path) -> None:
    stage.rq_worker()
    run = stage.submit("fail_once", path=str(tmp_path / "said")).wait(timeout=WITHIN)
    assert run.result() == 2
    assert [attempt[:2] for attempt in ended(run)] == [(1, "FAILED"), (2, "SUCCEEDED")]


def test_time_limit_ends_a_run_in_rq(stage: RqStage, tmp_path: Path) -> None:
    stage.rq_worker()
    run = stage.submit("too_long", path=str(tmp_path / "said")).wait(timeout=WITHIN)
    assert ended(run) == [(1, "FAILED", "timeout")]


def test_a_cancel_reaches_the_work_horse(stage: RqStage, tmp_path: Path) -> None:
    stage.rq_worker()
    run = stage.submit("hold_first", path=str(tmp_path / "said"))
    eventually(lambda: stage.said(tmp_path / "said"))
    run.cancel()
    run.wait(timeout=WITHIN)
    with pytest.raises(RunCancelled):
        run.result()


def test_reopened_run_gets_a_message_again(stage: RqStage, tmp_path: Path) -> None:
    run = stage.submit("note", path=str(tmp_path / "said"))
    run.cancel()
    stage.redis.flushall()
    run.retry()
    stage.rq_worker()
    assert run.wait(timeout=WITHIN).result() == 1


def test_redis_outage_only_delays_runs(database_url: str, own_redis: RedisServer, tmp_path: Path) -> None:
    stage = RqStage(database_url, own_redis.url, tmp_path)
    try:
        own_redis.kill()
        runs = [stage.submit("note", path=str(tmp_path / f"said-{number}")) for number in range(3)]
        own_redis.start()
        stage.rq_worker()
        for run in runs:
            assert run.wait(timeout=WITHIN).result() == 1
    finally:
        stage.close()


def test_work_horse_continues_when_its_worker_gave_up_because_redis_is_down(
    database_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    stage = RqStage(database_url, own_redis.url, tmp_path)
    try:
        worker = stage.rq_worker(*ORDINARY, "--job-monitoring-interval", "1")
        gate = tmp_path / "gate"
        run = stage.submit("hold_until", path=str(tmp_path / "said"), gate=str(gate))
        eventually(lambda: stage.said(tmp_path / "said"))
        own_redis.kill()
        eventually(lambda: worker.poll() is not None, WITHIN)
        gate.touch()
        assert run.wait(timeout=WITHIN).result() == 1
        assert [attempt[:2] for attempt in ended(run)] == [(1, "SUCCEEDED")]
    finally:
        stage.close()


def test_ringing_again_is_rare_and_bounded(stage: RqStage, tmp_path: Path) -> None:
    run = stage.submit("note", path=str(tmp_path / "said"))
    slow = RunRinger(stage.redis_url, again_after=3600.0)
    other = Ring("00000000-0000-7000-8000-000000000000", 1, "default")
    try:
        stage.redis.flushall()
        rings = [Ring(run.id, 1, "default"), other]
        assert slow.ring_again(rings) == 2
        assert slow.ring_again(rings) == 0
        stage.redis.delete(f"holdfast:rung:{other.job_id}")
        assert slow.ring_again(rings) == 1
        stage.redis.delete("rq:queue:default", f"holdfast:rung:{other.job_id}")
        stage.redis.rpush("rq:queue:default", *range(1000))
        assert slow.ring_again(rings) == 0, "there is enough for the workers to do"
        assert slow.may_sweep(3600.0)
        assert not slow.may_sweep(3600.0)
    finally:
        slow.close()


def test_unprocessed_messages_do_not_accumulate(stage: RqStage) -> None:
    ringer = RunRinger(stage.redis_url, again_after=3600.0)
    try:
        stage.redis.rpush("rq:queue:full", *range(10_000))
        rings = [Ring(f"00000000-0000-7000-8000-{number:012}", 1, "full") for number in range(3)]
        assert [ringer.ring([ring]) for ring in rings] == [1, 0, 0]
        assert ringer.ring([rings[0]._replace(queue="other")]) == 1
    finally:
        ringer.close()


def test_rq_worker_that_does_not_fork_keeps_its_signal_handlers(stage: RqStage, tmp_path: Path) -> None:
    worker = stage.rq_worker(*ORDINARY, "--worker-class", "rq.SimpleWorker")
    gate = tmp_path / "gate"
    run = stage.submit("hold_until", path=str(tmp_path / "said"), gate=str(gate))
    eventually(lambda: stage.said(tmp_path / "said"))
    worker.terminate()
    (name,) = stage.redis.smembers("rq:workers")
    eventually(
        lambda: stage.redis.hget(name, "shutdown_requested_date")
    )  # RQ has received the signal, and lets the run end
    gate.touch()
    assert worker.wait(timeout=WITHIN) == 0
    assert run.refresh().result() == 1


def test_sweep_works_while_redis_does_not_respond(stage: RqStage) -> None:
    nowhere = RunRinger("redis://127.0.0.1:1/0", again_after=1.0)
    assert Sweeper(partial(OwnConnection.connect, stage.database_url, session=SWEEP), nowhere).try_sweep() == 0
    assert nowhere.ring([Ring("00000000-0000-7000-8000-000000000000", 1, "default")]) == 0


@pytest.mark.parametrize(
    "argument", [None, 7, "", "x", "../../etc/passwd", ["a"], {"$ne": 1}, "0" * 10_000, "'; drop table runs; --"]
)
def test_anything_but_an_id_is_refused(stage: RqStage, monkeypatch: pytest.MonkeyPatch, argument: object) -> None:
    stage.enter(monkeypatch)
    execute_run(argument)  # type: ignore[arg-type]
    assert stage.client.workers() == []


def test_id_of_an_unknown_run_has_no_effect(stage: RqStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.enter(monkeypatch)
    execute_run("01890000-0000-7000-8000-000000000000")
    assert stage.client.workers() == []
