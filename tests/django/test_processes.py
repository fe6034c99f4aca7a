"""Workers as processes: tasks run in their children, and what is killed is done again."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

from holdfast.django import cancel, enqueue_many
from holdfast.django.exceptions import LeaseExpired
from holdfast.domain.errors import RunCancelled, RunTimedOut
from tests.django.app import tasks
from tests.django.app.models import Note
from tests.django.app.receivers import FILE_VARIABLE
from tests.django.site_support import DEADLINE, eventually, worker


def test_killed_worker_is_replaced_and_each_signal_sent_once(site: str, tmp_path: Path) -> None:
    told = tmp_path / "signals"
    result = tasks.hang_once.enqueue(str(tmp_path))
    with worker("--slots=1", "--worker-id=first", **{FILE_VARIABLE: str(told)}) as first:
        eventually((tmp_path / "begun").exists)
        result.refresh()
        assert (result.status, result.attempts) == ("RUNNING", 1)
        first.send_signal(signal.SIGKILL)
        first.wait()
    with worker("--slots=1", "--worker-id=second", **{FILE_VARIABLE: str(told)}) as second:

        def finished() -> bool:
            result.refresh()
            return bool(result.is_finished)

        eventually(finished)
        second.send_signal(signal.SIGTERM)
        assert second.wait(DEADLINE) == 0
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 2, 2)
    assert result.worker_ids == ["first", "second"]
    assert [error.exception_class for error in result.errors] == [LeaseExpired]
    assert result.started_at < result.last_attempted_at
    assert told.read_text().splitlines() == [
        "started HoldfastBackend hang_once RUNNING 1",
        "started HoldfastBackend hang_once RUNNING 2",
        "finished HoldfastBackend hang_once SUCCESSFUL 2",
    ]


def test_batch_runs_everything_in_children_that_know_django(site: str, tmp_path: Path) -> None:
    told = tmp_path / "signals"
    notes = enqueue_many(tasks.write_note, [((f"note {n}",), {}) for n in range(20)])
    pids = enqueue_many(tasks.backend_pid, [((), {})] * 4)
    late, gone = tasks.sleep.enqueue(30), tasks.leave.enqueue()
    with worker("--batch", "--slots=2", **{FILE_VARIABLE: str(told)}) as process:
        assert process.wait(DEADLINE) == 0
    for result in (*notes, *pids, late, gone):
        result.refresh()
    assert Note.objects.count() == 20
    assert {result.status for result in (*notes, *pids)} == {"SUCCESSFUL"}
    assert all(result.return_value for result in pids)
    assert (late.status, {error.exception_class for error in late.errors}) == ("FAILED", {RunTimedOut})
    assert (gone.status, {error.exception_class for error in gone.errors}) == ("FAILED", {SystemExit})
    words = Counter(line.split()[0] for line in told.read_text().splitlines())
    assert words == {"started": 26, "finished": 26}


def test_running_task_is_cancelled_and_its_worker_stops_with_zero(site: str, tmp_path: Path) -> None:
    told = tmp_path / "signals"
    result = tasks.hang_once.enqueue(str(tmp_path))
    with worker("--slots=1", **{FILE_VARIABLE: str(told)}) as process:
        eventually((tmp_path / "begun").exists)
        assert cancel(result).status == "RUNNING"

        def finished() -> bool:
            result.refresh()
            return bool(result.is_finished)

        eventually(finished)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    assert [error.exception_class for error in result.errors] == [RunCancelled]
    assert told.read_text().splitlines()[-1] == "finished HoldfastBackend hang_once FAILED 1"


def test_worker_ends_after_so_many_tasks(site: str) -> None:
    results = enqueue_many(tasks.add, [((n,), {}) for n in range(3)])
    with worker("--max-tasks=3") as process:
        assert process.wait(DEADLINE) == 0
    for result in results:
        result.refresh()
    assert {result.status for result in results} == {"SUCCESSFUL"}
