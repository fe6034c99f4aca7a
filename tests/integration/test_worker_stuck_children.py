"""Children that hang between runs, stop reading, or cannot be started: their runs are performed by others."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.context import assignment_for
from holdfast.domain.execution import ChildLimits
from holdfast.domain.values import Claim
from holdfast.executors import child_slot, spawning
from holdfast.executors.process import ProcessExecutor
from tests.integration.child_support import harmful_stage, unharmed
from tests.integration.worker_support import DEADLINE, Stage, eventually

IMPATIENT = ChildLimits(begin=0.5)


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = harmful_stage(database_url, tmp_path)
    yield stage
    stage.close()


def warm_up(stage: Stage, task: str) -> None:
    """Let the worker learn that this task is tiny, so that it assigns many of its runs to a child at once."""
    for run in stage.client.submit_many(task, [{"value": n} for n in range(300)]):
        stage.ended(run)


def test_a_run_given_to_a_stopped_child_is_performed_by_another(stage: Stage) -> None:
    with stage.worker(executor=ProcessExecutor(slots=1, limits=IMPATIENT)):
        child = stage.ended(stage.submit("pid")).result()
        os.kill(child, signal.SIGSTOP)
        run = stage.ended(stage.submit("pid"))
    assert run.result() != child
    assert unharmed(stage, [run])


def test_batch_of_runs_given_to_a_stopped_child_is_performed_by_another(stage: Stage) -> None:
    with stage.worker(executor=ProcessExecutor(slots=1, limits=IMPATIENT)):
        warm_up(stage, "echo")
        child = stage.ended(stage.submit("pid")).result()
        os.kill(child, signal.SIGSTOP)
        runs = stage.client.submit_many("echo", [{"value": n} for n in range(100)])
        assert [stage.ended(run).result() for run in runs] == list(range(100))
    assert unharmed(stage, runs)


def test_child_that_stops_between_two_runs_is_replaced_and_no_result_is_lost(stage: Stage) -> None:
    with stage.worker(executor=ProcessExecutor(slots=1, limits=IMPATIENT)):
        warm_up(stage, "stops_before_sending")
        batch = [{"value": n, "stop": n == 50} for n in range(100)]
        runs = stage.client.submit_many("stops_before_sending", batch)
        assert [stage.ended(run).result() for run in runs] == list(range(100))
    assert unharmed(stage, runs)


def test_a_child_that_stops_reading_is_replaced(stage: Stage) -> None:
    with stage.worker(executor=ProcessExecutor(slots=1, limits=IMPATIENT)):
        child = stage.ended(stage.submit("stops_reading")).result()
        runs = [stage.ended(stage.submit("pid")) for _ in range(3)]
    assert child not in [run.result() for run in runs]
    assert unharmed(stage, runs)


def test_the_time_limit_of_a_run_whose_child_was_stopped_is_enforced(stage: Stage) -> None:
    run = stage.submit("stops_itself")
    with stage.worker(slots=1):
        assert stage.ended(run).status == "FAILED"
        assert stage.ended(stage.submit("echo", value=1)).result() == 1
    assert [(attempt[1], attempt[3]) for attempt in stage.attempts(run)] == [("FAILED", "timeout")]


def test_a_run_that_holds_the_interpreter_does_not_delay_tiny_runs(stage: Stage) -> None:
    with stage.worker(slots=2):
        warm_up(stage, "grips")
        batch = [{"value": 0, "until": str(stage.file("go"))}, *({"value": n} for n in range(1, 100))]
        long, *tiny = stage.client.submit_many("grips", batch)
        assert [stage.ended(run).result() for run in tiny] == list(range(1, 100))
        assert not stage.client.get(long).status.final
        stage.file("go").touch()
        child = stage.ended(long).result()
        # It may still have a run that was taken from it, and gets no more.
        assert child not in [stage.ended(stage.submit("pid")).result() for _ in range(4)]
    assert unharmed(stage, [long, *tiny])


def test_a_cancelled_run_that_a_stopped_child_never_began_ends_cancelled(stage: Stage) -> None:
    with stage.worker(executor=ProcessExecutor(slots=1, limits=IMPATIENT)) as worker:
        child = stage.ended(stage.submit("pid")).result()
        os.kill(child, signal.SIGSTOP)
        run = stage.submit("patient", started=str(stage.file("started")), report=False)
        eventually(lambda: run.id in worker._exchange.session.held)
        run.cancel()
        assert stage.ended(run).status == "CANCELLED"
        assert stage.ended(stage.submit("echo", value=1)).result() == 1  # the only slot was not assigned to it again
    assert not stage.file("started").exists()


def test_a_run_that_no_child_begins_ends_as_crashed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = stage.submit("echo", value="hostile")

    def sent(claim: Claim, parameters: Any) -> Any:
        return () if claim.run_id == hostile.id else assignment_for(claim, parameters)

    monkeypatch.setattr(child_slot, "assignment_for", sent)
    with stage.worker(slots=1):
        # Each attempt costs several children, whose starts take long on a busy machine.
        assert stage.ended(hostile, within=3 * DEADLINE).status == "FAILED"
        innocent = stage.ended(stage.submit("echo", value=1))
    assert {attempt[3] for attempt in stage.attempts(hostile)} <= {"crash", "handed-back"}
    assert unharmed(stage, [innocent])


@pytest.mark.parametrize("error", [OSError(12, "Cannot allocate memory"), RuntimeError("can't start new thread")])
def test_a_child_that_cannot_be_started_is_started_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    starting = spawning.Spawned._start
    refused: list[int] = []

    def refuse(channel: int, mark: int) -> Any:
        if len(refused) < 3:
            refused.append(channel)
            raise error
        return starting(channel, mark)

    monkeypatch.setattr(spawning.Spawned, "_start", staticmethod(refuse))
    with stage.worker(slots=1):
        assert stage.ended(stage.submit("echo", value=1)).result() == 1
        refused.clear()
        assert stage.ended(stage.submit("leave_once", code=3)).attempt_count == 2
    assert len(refused) == 3
