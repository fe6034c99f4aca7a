"""Tasks that both releases run. They use only what both have."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from holdfast import Retry, current_run, task
from holdfast.jobs import View

QUICK = Retry(max_attempts=3, delays=(0.05,))


@task("fleet.work", retry=QUICK)
def work(n: int, fail_times: int = 0) -> int:
    """Write a row in the run's own transaction: one for each successful run, however often it was attempted."""
    run = current_run()
    with run.transaction() as connection:
        connection.execute("insert into effects (run_id, attempt) values (%s, %s)", [run.id, run.attempt])
    if run.attempt <= fail_times:
        raise ConnectionError(f"attempt {run.attempt} of {fail_times} that fail")
    return n


@task("fleet.later", retry=Retry(max_attempts=2, delays=(5,)))
def later(n: int) -> int:
    """Fails once, and is then due five seconds later."""
    if current_run().attempt == 1:
        raise ConnectionError("the first attempt fails")
    return n


@task("fleet.gate", retry=QUICK)
def gate(opened: str, started: str | None = None) -> int:
    """Run until a file exists."""
    run = current_run()
    if started is not None:
        Path(started).touch()
    while not Path(opened).exists():
        run.progress(1)
        threading.Event().wait(0.02)
    return run.attempt


@task("fleet.square", retry=QUICK)
def square(view: View, opened: str | None = None) -> int:
    """Square numbers; those above 20 only once a file exists."""
    numbers = list(view.read())
    while opened is not None and max(numbers) > 20 and not Path(opened).exists():
        threading.Event().wait(0.02)
    return sum(number**2 for number in numbers)


@task("fleet.total", retry=QUICK)
def total(results: Sequence[int]) -> int:
    return sum(results)
