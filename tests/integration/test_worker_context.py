"""What a task can do inside its run: steps, its own transaction, children, progress and log lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.context import current_run
from holdfast.domain.errors import HoldfastError
from holdfast.domain.states import Status
from tests.integration.worker_support import Stage, eventually

EXECUTORS = ("process", "inline")


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path)
    yield stage
    stage.close()


def test_current_run_outside_of_a_run_raises() -> None:
    with pytest.raises(HoldfastError, match="outside of a run"):
        current_run()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_step_is_executed_once_across_all_attempts(stage: Stage, executor: str) -> None:
    run = stage.submit("stepping", calls=str(stage.file("calls")), fail_times=2)
    with stage.worker(executor):
        assert stage.ended(run).result() == [{"pair": [1, 2], "attempt": 1}, 3]
    assert stage.said("calls") == ["called"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_task_that_postpones_its_run_is_attempted_again_at_no_cost(stage: Stage, executor: str) -> None:
    run = stage.submit("postpones", times=3, seconds=0.01)
    with stage.worker(executor):
        assert stage.ended(run).result() == 4
    assert [event.type for event in run.events()].count("POSTPONED") == 3


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_step_may_be_a_coroutine(stage: Stage, executor: str) -> None:
    run = stage.submit("async_steps", value=21)
    with stage.worker(executor):
        assert stage.ended(run).result() == 42


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("size", [0, 100_000])
def test_writes_of_a_run_commit_with_its_success(stage: Stage, executor: str, size: int) -> None:
    stage.query("create table effects (attempt integer)")
    run = stage.submit("writing", table="effects", fail_times=1, size=size)
    with stage.worker(executor):
        ended = stage.ended(run)
    assert ended.result() == "x" * size
    assert stage.query("select attempt from effects") == [(2,)]
    assert stage.event_types(run) == ["SUBMITTED", "CLAIMED", "RETRIED", "CLAIMED", "SUCCEEDED"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_writes_of_a_cancelled_run_are_rolled_back(stage: Stage, executor: str) -> None:
    stage.query("create table effects (attempt integer)")
    run = stage.submit("writing", table="effects", wait=str(stage.file("go")), started=str(stage.file("started")))
    with stage.worker(executor):
        stage.said("started")
        run.cancel()
        stage.file("go").touch()
        assert stage.ended(run).status is Status.CANCELLED
    assert stage.query("select attempt from effects") == []


@pytest.mark.parametrize("executor", EXECUTORS)
def test_writes_of_a_fenced_run_are_rolled_back(stage: Stage, executor: str) -> None:
    stage.query("create table effects (attempt integer)")
    run = stage.submit("writing", table="effects", wait=str(stage.file("go")), started=str(stage.file("started")))
    with stage.worker(executor):
        stage.said("started")
        # As if another worker had rescued the run and it had ended there.
        stage.query(
            """
            with gone as (delete from holdfast.leases returning *)
            insert into holdfast.attempts (run_id, number, worker_id, claimed_at, finished_at, status, outcome, reason)
            select run_id, number, worker_id, claimed_at, holdfast.now(), 'LOST', 'FAILED', 'lost' from gone
            returning run_id
            """
        )
        stage.file("go").touch()
        eventually(lambda: "FENCED" in stage.event_types(run))
    assert stage.client.get(run).status is Status.FAILED
    assert stage.query("select attempt from effects") == []


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_retried_parent_finds_its_children(stage: Stage, executor: str) -> None:
    run = stage.submit("parent", fail_times=2)
    with stage.worker(executor, slots=4):
        children = stage.ended(run).result()
        values = [stage.ended(stage.client.get(child)).result() for child in children]
    assert values == [1, 2, 3]
    found = stage.query("select id::text, parent_id::text, child_key, priority from holdfast.runs where task = 'echo'")
    assert sorted(found) == sorted(zip(children, [run.id] * 3, [None, "second", None], [0, 5, 0], strict=True))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_last_progress_and_the_log_are_stored(stage: Stage, executor: str) -> None:
    run = stage.submit("logging")
    with stage.worker(executor):
        ended = stage.ended(run)
    assert ended.progress == {"done": 2, "total": 2, "unit": "halves", "stage": "two"}
    lines = stage.query("select attempt, level, message from holdfast.logs where run_id = %s order by seq", run.id)
    assert lines == [(1, "info", "first line"), (1, "warning", "NUL \\0 here")]


def test_progress_is_visible_while_the_run_continues(stage: Stage) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    with stage.worker():
        eventually(lambda: (stage.client.get(run).progress or {}).get("done", 0) > 1)
        stage.file("go").touch()
        stage.ended(run)
