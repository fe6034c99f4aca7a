"""Processes started by a task end with its attempt's process and with its worker, however these end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.processes.family import alive, children, family
from tests.integration.child_support import harmful_stage
from tests.integration.worker_support import Stage, eventually


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = harmful_stage(database_url, tmp_path)
    yield stage
    stage.close()


def started(stage: Stage, line: int = 0) -> list[int]:
    """The processes of an attempt: its own, and the three that it started."""
    pids = [int(pid) for pid in stage.said("started", line + 1)[line].split()]
    assert len(pids) == 4
    return pids


def test_processes_of_a_task_die_with_a_killed_worker(stage: Stage) -> None:
    stage.submit("starts_processes", started=str(stage.file("started")))
    worker = stage.start("--slots", "1")
    pids = started(stage)
    assert alive(pids) == pids
    members = family(worker.pid)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    eventually(lambda: not alive(pids))
    eventually(lambda: not alive(members))


def test_processes_of_a_task_are_dead_when_its_next_attempt_begins(stage: Stage) -> None:
    run = stage.submit("starts_processes", started=str(stage.file("started")), ends="crash")
    with stage.worker(slots=1):
        stage.ended(run)
    assert stage.client.get(run).attempt_count == 3
    for line in range(3):
        assert not alive(started(stage, line))


def test_processes_of_a_task_die_when_it_is_cancelled(stage: Stage) -> None:
    run = stage.submit("starts_processes", started=str(stage.file("started")))
    with stage.worker(slots=1):
        pids = started(stage)
        run.cancel()
        assert stage.ended(run).status == "CANCELLED"
        eventually(lambda: not alive(pids))


def test_processes_of_a_task_end_when_the_worker_stops_normally(stage: Stage) -> None:
    run = stage.submit("starts_processes", started=str(stage.file("started")), ends="now")
    with stage.worker(slots=1):
        assert stage.ended(run).status == "SUCCEEDED"
        pids = started(stage)
    assert not alive(pids)


def test_a_killed_guardian_costs_one_attempt(stage: Stage) -> None:
    run = stage.submit("with_child_process", started=str(stage.file("started")))
    worker = stage.start("--slots", "1")
    pids = [int(pid) for pid in stage.said("started")[0].split()]
    [guardian] = [pid for pid in children(worker.pid) if pids[0] in children(pid)]
    os.kill(guardian, signal.SIGKILL)
    assert len(stage.said("started", 2)) == 2
    eventually(lambda: not alive(pids))
    assert stage.attempts(run)[0] == (1, "FAILED", None, "crash")


def test_a_suspended_guardian_does_not_prevent_a_worker_from_stopping(stage: Stage) -> None:
    run = stage.submit("starts_processes", started=str(stage.file("started")))
    worker = stage.start("--slots", "1")
    pids = started(stage)
    [guardian] = [pid for pid in children(worker.pid) if pids[0] in children(pid)]
    os.kill(guardian, signal.SIGSTOP)
    run.cancel()
    assert stage.ended(run).status == "CANCELLED"
    eventually(lambda: not alive(pids))
