"""Workers as processes: tasks run in their children, and killed runs are retried."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from holdfast.django import cancel, enqueue_many, run_of
from holdfast.django.compat import task_backends
from holdfast.django.exceptions import LeaseExpired
from holdfast.django.models import Worker
from holdfast.domain.errors import RunCancelled, RunTimedOut
from tests.django.app import tasks
from tests.django.app.models import Note
from tests.django.app.receivers import FILE_VARIABLE
from tests.django.site_support import DEADLINE, ROOT, eventually, worker


@pytest.mark.parametrize("executor", ["process", "inline"])
def test_killed_worker_is_replaced_and_each_signal_sent_once(site: str, tmp_path: Path, executor: str) -> None:
    lines = tmp_path / "signals"
    result = tasks.hang_once.enqueue(str(tmp_path))
    where = f"--executor={executor}"
    with worker(where, "--slots=1", "--worker-id=first", **{FILE_VARIABLE: str(lines)}) as first:
        eventually((tmp_path / "begun").exists)
        result.refresh()
        assert (result.status, result.attempts) == ("RUNNING", 1)
        first.send_signal(signal.SIGKILL)
        first.wait()
    with worker(where, "--slots=1", "--worker-id=second", **{FILE_VARIABLE: str(lines)}) as second:

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
    assert lines.read_text().splitlines() == [
        "started HoldfastBackend hang_once RUNNING 1",
        "started HoldfastBackend hang_once RUNNING 2",
        "finished HoldfastBackend hang_once SUCCESSFUL 2",
    ]


def finished(result: Any) -> bool:
    result.refresh()
    return bool(result.is_finished)


def test_transaction_that_locks_one_run_does_not_delay_the_others(site: str) -> None:
    locked, free = tasks.add.enqueue(1), tasks.add.enqueue(2)
    with ExitStack() as stack:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("select from holdfast.ready where run_id = %s for update", [locked.id])
                assert cursor.rowcount == 1
            stack.enter_context(worker("--slots=1"))
            eventually(lambda: finished(free))
            assert not finished(locked)
        eventually(lambda: finished(locked))
    assert (locked.return_value, free.return_value) == (2, 3)


def test_batch_runs_everything_in_children_that_know_django(site: str, tmp_path: Path) -> None:
    lines = tmp_path / "signals"
    notes = enqueue_many(tasks.write_note, [((f"note {n}",), {}) for n in range(20)])
    pids = enqueue_many(tasks.backend_pid, [((), {})] * 4)
    late, exits = tasks.sleep.enqueue(30), (tasks.leave.enqueue(), tasks.leave_later.enqueue())
    with worker("--batch", "--slots=2", **{FILE_VARIABLE: str(lines)}) as process:
        assert process.wait(DEADLINE) == 0
    for result in (*notes, *pids, late, *exits):
        result.refresh()
    assert Note.objects.count() == 20
    assert {result.status for result in (*notes, *pids)} == {"SUCCESSFUL"}
    assert all(result.return_value for result in pids)
    assert (late.status, {error.exception_class for error in late.errors}) == ("FAILED", {RunTimedOut})
    assert [(one.status, one.errors[0].exception_class) for one in exits] == [("FAILED", SystemExit)] * 2
    words = Counter(line.split()[0] for line in lines.read_text().splitlines())
    assert words == {"started": 27, "finished": 27}


def test_running_task_is_cancelled_and_its_worker_stops_with_zero(site: str, tmp_path: Path) -> None:
    lines = tmp_path / "signals"
    result = tasks.hang_once.enqueue(str(tmp_path))
    with worker("--slots=1", **{FILE_VARIABLE: str(lines)}) as process:
        eventually((tmp_path / "begun").exists)
        assert cancel(result).status == "RUNNING"

        def finished() -> bool:
            result.refresh()
            return bool(result.is_finished)

        eventually(finished)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    assert [error.exception_class for error in result.errors] == [RunCancelled]
    assert lines.read_text().splitlines()[-1] == "finished HoldfastBackend hang_once FAILED 1"


def test_worker_stops_after_its_maximum_number_of_tasks(site: str) -> None:
    results = enqueue_many(tasks.add, [((n,), {}) for n in range(3)])
    with worker("--max-tasks=3") as process:
        assert process.wait(DEADLINE) == 0
    for result in results:
        result.refresh()
    assert {result.status for result in results} == {"SUCCESSFUL"}


def test_first_sigterm_lets_the_running_task_finish(site: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    result = tasks.wait_for.enqueue(str(file))
    with worker("--slots=1", HOLDFAST_GRACE_SECONDS="600") as process:
        eventually(Path(f"{file}.waiting").exists)
        process.send_signal(signal.SIGTERM)
        file.touch()
        assert process.wait(DEADLINE) == 0
    result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", "seen")


def test_second_signal_hands_back_the_running_task(site: str, tmp_path: Path) -> None:
    """Two different signals, because the same signal twice may arrive as one."""
    file = tmp_path / "file"
    result = tasks.wait_for.enqueue(str(file))
    with worker("--slots=1", HOLDFAST_GRACE_SECONDS="600") as process:
        eventually(Path(f"{file}.waiting").exists)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)
    result.refresh()
    assert result.status == "READY"
    file.touch()
    with worker("--batch", "--slots=1") as process:
        assert process.wait(DEADLINE) == 0
    result.refresh()
    assert (result.status, result.return_value, run_of(result).attempt_count) == ("SUCCESSFUL", "seen", 2)


class ChangingSite:
    """The test site with one more app, whose code changes."""

    def __init__(self, directory: Path) -> None:
        self.app, self.broken = directory / "changing", directory / "broken"
        self.app.mkdir()
        (self.app / "__init__.py").touch()
        (directory / "changing_settings.py").write_text(
            "from tests.django.settings import *\n\nINSTALLED_APPS = [*INSTALLED_APPS, 'changing']\n"
        )
        self.environment = {
            "DJANGO_SETTINGS_MODULE": "changing_settings",
            "PYTHONPATH": os.pathsep.join([str(directory), str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def write(self, version: int) -> None:
        code = f"from holdfast.django import task\n\n\n@task\ndef version():\n    return {version}\n"
        (self.app / "tasks.py").write_text(code)

    def break_it(self) -> None:
        """Write code that cannot be imported, and leaves a file when a process tries to."""
        code = f"from pathlib import Path\n\nPath({str(self.broken)!r}).touch()\nraise RuntimeError\n"
        (self.app / "tasks.py").write_text(code)

    def version(self) -> int:
        """Which version of the code a worker runs."""
        enqueue = "from changing.tasks import version; print(version.enqueue().id)"
        shell = [sys.executable, "-m", "django", "shell", "--verbosity=0", "--command", enqueue]
        environment = {**os.environ, **self.environment}
        made = subprocess.run(shell, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)
        result = task_backends["default"].get_result(made.stdout.decode().strip())

        def finished() -> bool:
            result.refresh()
            return bool(result.is_finished)

        eventually(finished)
        return int(result.return_value)


def test_worker_restarts_when_code_changes(site: str, tmp_path: Path) -> None:
    changing = ChangingSite(tmp_path)
    changing.write(1)
    with worker("--reload", "--slots=1", **changing.environment) as process:
        assert changing.version() == 1
        changing.write(2)
        eventually(lambda: Worker.objects.count() == 2)
        assert changing.version() == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    assert Worker.objects.filter(stopped_at=None).count() == 0


def test_worker_that_cannot_import_changed_code_starts_after_the_next_change(site: str, tmp_path: Path) -> None:
    changing = ChangingSite(tmp_path)
    changing.write(1)
    with worker("--reload", "--slots=1", **changing.environment) as process:
        eventually(lambda: Worker.objects.count() == 1)
        changing.break_it()
        eventually(changing.broken.exists)
        changing.write(2)
        eventually(lambda: process.poll() is not None or Worker.objects.count() == 2)
        assert changing.version() == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
