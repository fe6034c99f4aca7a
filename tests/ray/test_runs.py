"""The same runs on every executor: in the worker, in child processes, in Ray actors and as Ray jobs.

Every test passes unchanged on all four. What an executor cannot do is declared in `CANNOT_KILL`, with what happens
instead.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.integration.worker_support import eventually
from tests.ray.stage import WAIT_SECONDS, RayStage

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

# A thread cannot be killed: a run that ignores requests keeps its thread until it returns, and only then ends.
CANNOT_KILL = {"inline"}


def test_a_run_succeeds_and_its_attempt_names_the_executor(runs: RayStage) -> None:
    run = runs.submit("same.succeed", text="hello")
    assert runs.ended(run) == "SUCCEEDED"
    assert run.result()["text"] == "hello"
    (attempt,) = run.attempts()
    assert (attempt.status, attempt.executor) == ("SUCCEEDED", runs.executor)
    expected = ["SUBMITTED", "CLAIMED", *(["TAKEN_OVER"] if runs.executor == "ray_job" else []), "SUCCEEDED"]
    assert runs.story(run) == expected


def test_an_asynchronous_task_succeeds(runs: RayStage) -> None:
    run = runs.submit("same.await", text="hello")
    assert runs.ended(run) == "SUCCEEDED"
    assert run.result() == "hello"


def test_a_failed_attempt_is_retried(runs: RayStage) -> None:
    run = runs.submit("same.fail_once", path=str(runs.file("attempts")))
    assert runs.ended(run) == "SUCCEEDED"
    assert runs.lines("attempts") == ["attempt 1", "attempt 2"]
    first, second = run.attempts()
    assert first.error is not None
    assert (first.status, first.error["class"], second.status) == ("FAILED", "KeyError", "SUCCEEDED")
    assert "fail_once" in first.error["traceback"]


def test_a_fatal_error_is_not_retried(runs: RayStage) -> None:
    run = runs.submit("same.fatal", path=str(runs.file("attempts")))
    assert runs.ended(run) == "FAILED"
    assert runs.lines("attempts") == ["attempt 1"]


def test_a_run_that_exceeds_its_time_limit_fails_with_that_reason(runs: RayStage) -> None:
    run = runs.submit("same.too_slow")
    assert runs.ended(run) == "FAILED"
    (attempt,) = run.attempts()
    assert attempt.error is not None
    assert (attempt.reason, attempt.error["class"]) == ("timeout", "RunTimedOut")


def test_a_cancelled_run_stops(runs: RayStage) -> None:
    run = runs.submit("same.wait", path=str(runs.file("began")))
    eventually(lambda: runs.lines("began"), WAIT_SECONDS)
    run.cancel("enough")
    assert runs.ended(run) == "CANCELLED"
    assert [attempt.status for attempt in run.attempts()] == ["CANCELLED"]


def test_a_run_that_ignores_a_cancel_is_killed_and_the_next_one_runs(runs: RayStage) -> None:
    run = runs.submit("same.deaf", path=str(runs.file("began")), release=str(runs.file("release")))
    eventually(lambda: runs.lines("began"), WAIT_SECONDS)
    run.cancel("enough")
    if runs.executor in CANNOT_KILL:
        next_run = runs.submit("same.succeed", text="waits for the thread")
        assert run.refresh().status == "RUNNING"
        assert next_run.refresh().status != "SUCCEEDED"
        runs.file("release").touch()
    assert runs.ended(run) == "CANCELLED"
    assert runs.ended(runs.submit("same.succeed", text="after")) == "SUCCEEDED"


def test_progress_is_visible_while_the_run_is_executed(runs: RayStage) -> None:
    run = runs.submit("same.progress", release=str(runs.file("release")))
    seen = eventually(lambda: run.refresh().record.progress, WAIT_SECONDS)
    assert seen == {"done": 1, "total": 4, "unit": "steps", "stage": "begun"}
    runs.file("release").touch()
    assert runs.ended(run) == "SUCCEEDED"
    assert run.record.progress == {"done": 4, "total": 4, "unit": "steps", "stage": "ended"}


def test_step_is_executed_once_across_all_attempts(runs: RayStage) -> None:
    run = runs.submit("same.steps", path=str(runs.file("steps")))
    assert runs.ended(run) == "SUCCEEDED"
    assert run.result() == ["of attempt 1", "of attempt 2"]
    assert runs.lines("steps") == ["first", "second"]


def test_writes_in_the_runs_own_transaction_commit_only_with_its_success(runs: RayStage) -> None:
    with psycopg.connect(runs.database_url, autocommit=True) as connection:
        connection.execute("create table if not exists ray_effects (run_id uuid, attempt integer)")
        run = runs.submit("same.own_transaction")
        assert runs.ended(run) == "SUCCEEDED"
        rows = connection.execute("select attempt from ray_effects where run_id = %s", [run.id]).fetchall()
    assert rows == [(2,)]


def test_a_retried_parent_finds_its_children(runs: RayStage) -> None:
    run = runs.submit("same.parent", queue=runs.queue)
    assert runs.ended(run) == "SUCCEEDED"
    children = {name: runs.client.get(id_) for name, id_ in run.result().items()}
    assert [runs.ended(child) for child in children.values()] == ["SUCCEEDED", "SUCCEEDED"]
    assert {child.result()["text"] for child in children.values()} == {"one", "two"}


def test_a_large_result_is_stored_outside_the_row(runs: RayStage) -> None:
    run = runs.submit("same.large", size=200_000)
    assert runs.ended(run) == "SUCCEEDED"
    assert run.record.result_ref is not None
    assert run.result() == "x" * 200_000


def test_log_lines_are_stored_in_order(runs: RayStage) -> None:
    run = runs.submit("same.log", word="words")
    assert runs.ended(run) == "SUCCEEDED"
    assert [(line.level, line.message) for line in runs.client.logs(run) if "words" in line.message] == [
        ("info", "begun words"),
        ("warning", "careful words"),
    ]


def test_a_map_is_executed_and_collected(runs: RayStage) -> None:
    run = runs.submit("same.map", queue=runs.queue)
    assert runs.ended(run) == "SUCCEEDED"
    join = runs.client.get(run.result())
    assert runs.ended(join) == "SUCCEEDED"
    assert join.result() == sum(value * value for value in range(6))
