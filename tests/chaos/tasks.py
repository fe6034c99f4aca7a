"""The tasks that run during faults. Every body notes that it began and that it is about to return.

The notes are lines in one file that all processes append to; they show what really happened, whatever the database
says. Tasks have many attempts, so that no run can fail because faults used up all of them: a run that ends FAILED
although its task does not raise `Fatal` is a defect.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from holdfast import Fatal, Retry, current_run, task
from holdfast.jobs import View

NOTES = "CHAOS_NOTES"
PATIENT = Retry(max_attempts=40, delays=(0.2, 0.5, 1.0))
STEP_SECONDS = 0.05
# Longer than a process may outlive its worker.
HELPER_SECONDS = 60


def note(what: str) -> None:
    run = current_run()
    line = f"{what} {run.id} {run.attempt}\n".encode()
    descriptor = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def work(seconds: float) -> None:
    """Work for this long, reporting progress, which raises if the run is cancelled."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        current_run().progress(0)
        time.sleep(min(STEP_SECONDS, left))


@task("chaos.plain", retry=PATIENT)
def plain(n: int, seconds: float = 0.0) -> int:
    note("began")
    work(seconds)
    note("returned")
    return n


@task("chaos.inline", retry=PATIENT, executor="inline")
def inline(n: int) -> int:
    note("began")
    note("returned")
    return n


@task("chaos.flaky", retry=PATIENT)
def flaky(n: int, times: int) -> int:
    note("began")
    if current_run().attempt <= times:
        raise ConnectionError("fails at first")
    note("returned")
    return n


@task("chaos.stepped", retry=PATIENT)
def stepped(n: int, seconds: float) -> list[Any]:
    """Return the result of a step, which is the same in later attempts."""
    note("began")
    run = current_run()
    kept = run.step("mark", lambda: [n, run.attempt])
    work(seconds)
    note("returned")
    return kept


@task("chaos.effect", retry=PATIENT)
def effect(n: int, times: int, seconds: float) -> int:
    """Write a row in the run's own transaction; the first attempts fail after writing."""
    note("began")
    run = current_run()
    with run.transaction() as connection:
        connection.execute("insert into effects (run_id, attempt) values (%s, %s)", [run.id, run.attempt])
    work(seconds)
    if run.attempt <= times:
        raise ConnectionError("after having written")
    note("returned")
    return n


@task("chaos.doomed", retry=PATIENT)
def doomed(n: int) -> None:
    note("began")
    raise Fatal("meant to fail")


@task("chaos.second_wind", retry=PATIENT)
def second_wind(n: int) -> int:
    """Fail permanently in the first attempt, and succeed once reopened."""
    note("began")
    if current_run().attempt == 1:
        raise Fatal("meant to fail once")
    note("returned")
    return n


@task("chaos.parent", retry=PATIENT)
def parent(n: int) -> list[str]:
    note("began")
    run = current_run()
    made = [run.submit("chaos.inline", {"n": n}), run.submit("chaos.plain", {"n": n}, key="second")]
    note("returned")
    return made


@task("chaos.helper", retry=PATIENT)
def helper(n: int, seconds: float) -> int:
    """Start a process, which must not outlive the worker."""
    note("began")
    with subprocess.Popen(["sleep", str(HELPER_SECONDS)]) as process:
        try:
            work(seconds)
        finally:
            process.kill()
    note("returned")
    return n


@task("chaos.slice", retry=PATIENT)
def part(view: View) -> int:
    note("began")
    total = sum(view.read())
    note("returned")
    return total


@task("chaos.total", retry=PATIENT)
def total(results: Sequence[int]) -> int:
    note("began")
    added = sum(results)
    note("returned")
    return added
