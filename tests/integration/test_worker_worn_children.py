"""A child whose resources its runs have used up is replaced before later runs are affected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.domain.execution import ChildLimits
from holdfast.executors.process import ProcessExecutor
from holdfast.observe import subscribe
from holdfast.processes.family import alive
from tests.integration.child_support import harmful_stage, unharmed
from tests.integration.worker_support import Stage, eventually


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = harmful_stage(database_url, tmp_path)
    yield stage
    stage.close()


def test_runs_after_one_that_leaked_descriptors_do_not_fail(stage: Stage) -> None:
    with stage.worker(slots=1):
        poisoned = stage.ended(stage.submit("leaks_descriptors")).result()
        innocent = [stage.ended(stage.submit("opens_files")) for _ in range(10)]
    assert unharmed(stage, innocent)
    assert poisoned not in [run.result() for run in innocent]


def test_at_most_one_of_many_tiny_runs_fails_in_a_child_without_descriptors(stage: Stage) -> None:
    with stage.worker(slots=1):
        for run in stage.client.submit_many("opens_files", [{}] * 300):
            stage.ended(run)
        batch = [{"poison": number == 0} for number in range(100)]
        innocent = [stage.ended(run) for run in stage.client.submit_many("opens_files", batch)]
    failed = [run for run in innocent if not unharmed(stage, [run])]
    assert len(failed) <= 1


def test_a_child_whose_run_found_no_descriptor_is_replaced(stage: Stage) -> None:
    with stage.worker(slots=1):
        before = stage.ended(stage.submit("pid")).result()
        assert stage.ended(stage.submit("leaks_descriptors", fail=True)).status == "FAILED"
        innocent = stage.ended(stage.submit("opens_files"))
    assert unharmed(stage, [innocent])
    assert innocent.result() != before


def test_a_child_whose_failed_run_left_a_thread_is_replaced(stage: Stage) -> None:
    with stage.worker(slots=1):
        stage.ended(stage.submit("fails_and_leaves_a_thread", pid=str(stage.file("pid"))))
        assert stage.ended(stage.submit("pid")).result() != int(stage.said("pid")[0])


def test_processes_that_a_failed_run_left_are_ended(stage: Stage) -> None:
    with stage.worker(slots=1):
        run = stage.submit("starts_processes", started=str(stage.file("started")), ends="failure")
        pids = [int(pid) for pid in stage.said("started")[0].split()]
        eventually(lambda: not alive(pids))
        stage.ended(run)


def test_child_that_uses_too_much_memory_is_replaced(stage: Stage) -> None:
    with stage.worker(executor=ProcessExecutor(slots=1, limits=ChildLimits(memory=30_000_000))):
        first = stage.ended(stage.submit("hoards", size=40_000_000)).result()
        eventually(lambda: stage.ended(stage.submit("pid")).result() != first)


def test_a_child_that_is_old_is_replaced(stage: Stage) -> None:
    with stage.worker(executor=ProcessExecutor(slots=1, limits=ChildLimits(age=0.1))):
        first = stage.ended(stage.submit("pid")).result()
        eventually(lambda: stage.ended(stage.submit("pid")).result() != first)


def test_a_child_gets_no_more_runs_than_its_limit(stage: Stage) -> None:
    with stage.worker(executor=ProcessExecutor(slots=1, limits=ChildLimits(runs=2))):
        pids = [stage.ended(run).result() for run in stage.client.submit_many("pid", [{}] * 9)]
    assert max(pids.count(pid) for pid in pids) == 2


@pytest.mark.parametrize("slots", [1, 2])
def test_the_next_attempt_of_a_failed_run_gets_another_child(stage: Stage, slots: int) -> None:
    with stage.worker(slots=slots):
        runs = [stage.submit("fails_everywhere", pids=str(stage.file(f"pids-{n}"))) for n in range(3)]
        for run in runs:
            assert stage.ended(run).status == "FAILED"
        for number in range(3):
            pids = [line.split()[1] for line in stage.said(f"pids-{number}", 3)]
            assert len(set(pids)) == 3


def test_an_ordinary_failure_does_not_replace_the_child(stage: Stage) -> None:
    with stage.worker(slots=1):
        before = stage.ended(stage.submit("pid")).result()
        assert stage.ended(stage.submit("fatal")).status == "FAILED"
        assert stage.ended(stage.submit("pid")).result() == before


def test_a_run_that_failed_in_all_children_replaces_one_of_them(stage: Stage) -> None:
    replaced: list[str] = []
    with ExitStack() as stack:
        stack.callback(
            subscribe(lambda event, fields: replaced.append(fields["reason"]), lambda event: event == "child.replaced")
        )
        stack.enter_context(stage.worker(slots=2))
        assert stage.ended(stage.submit("fails_everywhere", pids=str(stage.file("pids")))).status == "FAILED"
    assert len(replaced) == 1


def test_settings_reach_the_children(database_url: str, tmp_path: Path) -> None:
    stage = Stage(database_url, tmp_path, child_max_runs=1)
    try:
        with stage.worker(slots=1):
            assert len({stage.ended(stage.submit("pid")).result() for _ in range(3)}) == 3
    finally:
        stage.close()
