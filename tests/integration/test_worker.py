"""How a worker handles runs, whatever their tasks do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import ops
from holdfast.client import Run
from holdfast.domain.errors import RunCancelled, RunFailed
from holdfast.domain.states import Status
from holdfast.drivers import psycopg as driver
from holdfast.verbs.submissions import prepare
from tests.integration.worker_support import DEADLINE, Stage, eventually

EXECUTORS = ("process", "inline")


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path)
    yield stage
    stage.close()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_run_succeeds_and_its_result_is_returned_unchanged(stage: Stage, executor: str) -> None:
    value = {"ünï": [1, 2.5, None, True, "\U0001f40b"], "big": 2**63}
    run = stage.submit("echo", value=value)
    with stage.worker(executor):
        ended = stage.ended(run)
    assert (ended.status, ended.attempt_count, ended.result()) == (Status.SUCCEEDED, 1, value)
    assert stage.event_types(run) == ["SUBMITTED", "CLAIMED", "SUCCEEDED"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_task_can_read_its_run(stage: Stage, executor: str) -> None:
    run = stage.submit("about", x=3)
    with stage.worker(executor):
        result = stage.ended(run).result()
    assert result == [run.id, 1, 1, "about", {"x": 3}, run.payload_hash, None]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_failure_is_retried_after_its_delay(stage: Stage, executor: str) -> None:
    run = stage.submit("fail", times=2)
    with stage.worker(executor):
        assert stage.ended(run).result() == 3
    assert stage.attempts(run) == [
        (1, "FAILED", None, None),
        (2, "FAILED", None, None),
        (3, "SUCCEEDED", "SUCCEEDED", None),
    ]
    error = stage.client.attempts(run)[0].error
    assert error is not None
    assert error["class"] == "ConnectionError"
    assert error["message"] == "attempt 1 of 2 that fail"
    assert "in fail\n" in error["traceback"]
    assert "/holdfast/executors/" not in error["traceback"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_run_fails_after_its_last_attempt(stage: Stage, executor: str) -> None:
    run = stage.submit("fail", times=99)
    with stage.worker(executor):
        ended = stage.ended(run)
    assert (ended.status, ended.attempt_count) == (Status.FAILED, 3)
    with pytest.raises(RunFailed, match="attempt 3 of 99"):
        ended.result()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("task", ["fatal", "denied"])
def test_fatal_errors_are_not_retried(stage: Stage, task: str, executor: str) -> None:
    run = stage.submit(task)
    with stage.worker(executor):
        assert stage.ended(run).status is Status.FAILED
    assert stage.attempts(run) == [(1, "FAILED", "FAILED", None)]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_any_error_can_be_stored(stage: Stage, executor: str) -> None:
    run = stage.submit("nasty")
    with stage.worker(executor):
        stage.ended(run)
    error = stage.client.attempts(run)[0].error
    assert error is not None
    assert error["message"].startswith("NUL \\0 and half a pair \\ud800xxx")
    assert len(error["message"]) < 5000
    assert "a local value" not in error["traceback"]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("what", ["nan", "nul", "surrogate", "object"])
def test_result_that_cannot_be_stored_fails_the_run_with_a_clear_error(stage: Stage, what: str, executor: str) -> None:
    run = stage.submit("returns", what=what)
    with stage.worker(executor):
        ended = stage.ended(run)
    assert (ended.status, ended.attempt_count) == (Status.FAILED, 1)
    assert ended.error is not None
    assert ended.error["class"] == "holdfast.domain.errors.ResultNotStorable"


@pytest.mark.parametrize("executor", EXECUTORS)
def test_result_above_the_size_limit_fails_the_run_with_a_clear_error(
    database_url: str, tmp_path: Path, executor: str
) -> None:
    stage = Stage(database_url, tmp_path, max_result_bytes=1000)
    run = stage.submit("returns", what="large", size=1001)
    with stage.worker(executor):
        ended = stage.ended(run)
    stage.close()
    assert ended.error is not None
    assert "larger than 1000 bytes" in ended.error["message"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_large_result_is_stored_as_a_file(stage: Stage, executor: str) -> None:
    run = stage.submit("returns", what="large", size=100_000)
    with stage.worker(executor):
        ended = stage.ended(run)
    assert ended.result() == "x" * 100_000
    assert ended.result_ref == f"{run.id}/1.json"
    assert (stage.file("artifacts") / f"{run.id}/1.json").stat().st_size == 100_002


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_full_disk_is_a_failure_that_is_retried(stage: Stage, executor: str) -> None:
    stage.file("artifacts").write_text("a file where the directory should be")
    run = stage.submit("returns", what="large", size=100_000)
    with stage.worker(executor):
        eventually(lambda: stage.client.get(run).attempt_count >= 2)
        stage.file("artifacts").unlink()
        ended = stage.ended(run)
    first = stage.client.attempts(run)[0]
    assert first.error is not None
    assert "could not be stored" in first.error["message"]
    assert ended.status is Status.SUCCEEDED


@pytest.mark.parametrize("executor", ["process", "inline"])
def test_unknown_task_is_left_to_other_workers_and_never_imported(stage: Stage, executor: str) -> None:
    run = as_stored(stage, "echo", {}, task="antigravity.fly", policy='{"max_attempts": 1}')
    with stage.worker(executor):
        stage.ended(stage.submit("echo", value=1))
        assert [reason.code for reason in stage.client.why(run)] == ["no-worker-for-task"]
        found = stage.client.get(run)
    assert found.status is Status.PENDING
    assert stage.event_types(run) == ["SUBMITTED"]
    assert "antigravity" not in sys.modules


def test_worker_with_until_empty_exits_when_only_runs_of_other_tasks_are_left(stage: Stage) -> None:
    run = as_stored(stage, "echo", {}, task="antigravity.fly")
    worker = stage.start("--until-empty")
    assert worker.wait(DEADLINE) == 0
    assert stage.client.get(run).status is Status.PENDING


def test_a_pending_run_is_cancelled_at_once(stage: Stage) -> None:
    run = stage.client.submit("echo", {}, run_after=timedelta(hours=1))
    with stage.worker():
        assert run.cancel().status is Status.CANCELLED


@pytest.mark.parametrize(
    ("task", "executor"),
    [("patient", "process"), ("patient", "inline"), ("hang", "process"), ("deaf", "process"), ("spin", "process")],
)
def test_a_running_run_is_cancelled_whatever_it_does(stage: Stage, task: str, executor: str) -> None:
    run = stage.submit(task, started=str(stage.file("started")))
    after = stage.submit("echo", value="next")
    with stage.worker(executor, slots=1):
        stage.said("started")
        run.cancel("no longer needed")
        ended = stage.ended(run)
        assert stage.ended(after).result() == "next"
    assert ended.status is Status.CANCELLED
    assert stage.attempts(run) == [(1, "CANCELLED", "CANCELLED", "no longer needed")]
    with pytest.raises(RunCancelled, match="no longer needed"):
        ended.result()


def test_interrupted_code_can_clean_up(database_url: str, tmp_path: Path) -> None:
    # With the default time between the request to stop and the kill.
    with closing(Stage(database_url, tmp_path, grace_seconds=10.0)) as stage:
        run = stage.submit("tidy", started=str(stage.file("started")), cleaned=str(stage.file("cleaned")))
        with stage.worker():
            stage.said("started")
            run.cancel()
            assert stage.ended(run).status is Status.CANCELLED
        assert stage.said("cleaned") == ["clean"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_coroutine_is_cancelled(stage: Stage, executor: str) -> None:
    run = stage.submit("async_forever", started=str(stage.file("started")), cleaned=str(stage.file("cleaned")))
    with stage.worker(executor):
        stage.said("started")
        run.cancel()
        assert stage.ended(run).status is Status.CANCELLED
    assert stage.said("cleaned") == ["clean"]


@pytest.mark.parametrize("task", ["hang", "spin", "deaf"])
def test_time_limit_is_enforced_for_any_code(stage: Stage, task: str) -> None:
    run = limited(stage, task, started=str(stage.file("started")))
    with stage.worker():
        ended = stage.ended(run)
    assert ended.status is Status.FAILED
    assert [(a[1], a[3]) for a in stage.attempts(run)] == [("FAILED", "timeout")] * 2
    assert ended.last_error == "RunTimedOut: the run took longer than its timeout of 0.2 s"


def test_inline_run_past_its_time_limit_is_asked_to_stop(stage: Stage) -> None:
    run = limited(stage, "patient", started=str(stage.file("started")))
    with stage.worker("inline"):
        assert stage.ended(run).status is Status.FAILED
    assert [(a[1], a[3]) for a in stage.attempts(run)] == [("FAILED", "timeout")] * 2


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_time_limit_can_be_extended(stage: Stage, executor: str) -> None:
    run = limited(stage, "extending", extended=str(stage.file("extended")), until=str(stage.file("go")))
    long_enough = limited(stage, "patient", started=str(stage.file("started")))
    with stage.worker(executor, slots=2):
        stage.said("extended")
        if executor == "process":
            stage.ended(long_enough)  # twice the same limit has passed for the other run
        stage.file("go").touch()
        assert stage.ended(run).result() == "in time"


def as_stored(stage: Stage, name: str, parameters: dict[str, Any], **changes: Any) -> Run:
    """Submit a run that differs from what a client would write."""
    prepared = replace(prepare(stage.settings, name, parameters), **changes)
    with psycopg.connect(stage.url, autocommit=True) as connection:
        return stage.client.get(driver.run(connection, ops.submit(prepared)).run.id)


def limited(stage: Stage, task: str, **parameters: str) -> Run:
    """A run with two attempts of 0.2 s each."""
    return as_stored(stage, task, parameters, policy='{"max_attempts": 2, "delays": [0.05], "timeout": 0.2}')


def test_output_of_user_code_does_not_disturb_the_worker(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    run = stage.submit("prints")
    with stage.worker():
        assert stage.ended(run).result() == "printed"
    assert "from user code" in capfd.readouterr().err


def test_coroutines_run_at_the_same_time(stage: Stage) -> None:
    runs = [stage.submit("meeting", room=str(stage.directory), others=3) for _ in range(3)]
    with stage.worker("inline", slots=3):
        assert [stage.ended(run).result() for run in runs] == [3, 3, 3]


def test_inline_task_runs_in_the_worker_process(stage: Stage) -> None:
    run = stage.submit("inline_echo", value=1)
    with stage.worker("process"):
        assert stage.ended(run).result() == [1, "holdfast-inline"]
    assert stage.client.attempts(run)[0].executor == "inline"


@pytest.mark.parametrize("executor", EXECUTORS)
def test_many_runs_of_many_queues_are_each_executed_once(stage: Stage, executor: str) -> None:
    runs = []
    for queue in ("a", "b", "c"):
        runs += stage.client.submit_many("echo", [{"value": n} for n in range(200)], queue=queue)
    with stage.worker(executor):
        eventually(lambda: stage.query("select count(*) from holdfast.attempts")[0][0] == 600)
    assert stage.query("select count(*), count(distinct run_id) from holdfast.attempts") == [(600, 600)]


def test_a_worker_takes_only_from_its_queues(stage: Stage) -> None:
    mine = stage.client.submit("echo", {}, queue="mine")
    other = stage.client.submit("echo", {}, queue="other")
    with stage.worker(queues=("mine",)):
        stage.ended(mine)
        again = stage.client.submit("echo", {}, queue="mine")
        stage.ended(again)
    assert stage.client.get(other).status is Status.PENDING


def test_run_is_claimed_when_it_is_due(stage: Stage) -> None:
    with stage.worker():
        run = stage.client.submit("echo", {"value": 1}, run_after=timedelta(seconds=0.3))
        assert stage.ended(run).result() == 1


def test_worker_with_until_empty_exits_when_there_are_no_runs(stage: Stage) -> None:
    runs = stage.client.submit_many("fail", [{"times": 1}] * 5)
    with stage.worker(until_empty=True) as worker:
        eventually(lambda: stage.query("select count(*) from holdfast.workers where stopped_at is not null")[0][0])
    assert worker.options.until_empty
    assert {stage.client.get(run).status for run in runs} == {Status.SUCCEEDED}
