"""Tasks of runs that must end in the same way on every executor."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast import Fatal, Retry, current_run, task
from holdfast.jobs import View, sync

ONCE = Retry(max_attempts=1)
TWICE = Retry(max_attempts=2, delays=(0.0,))


def leave(path: str, line: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@task("same.succeed", retry=ONCE)
def succeed(text: str) -> dict[str, object]:
    return {"text": text, "pid": os.getpid()}


@task("same.await", retry=ONCE)
async def awaited(text: str) -> str:
    await asyncio.sleep(0)
    return text


@task("same.fail_once", retry=TWICE)
def fail_once(path: str) -> str:
    number = current_run().attempt
    leave(path, f"attempt {number}")
    if number == 1:
        raise KeyError("the first attempt breaks")
    return "mended"


@task("same.fatal", retry=TWICE)
def fatal(path: str) -> None:
    leave(path, f"attempt {current_run().attempt}")
    raise Fatal("never again")


@task("same.too_slow", retry=ONCE, timeout=timedelta(seconds=0.5))
def too_slow() -> None:
    """Exceed the time limit, and stop when asked to."""
    while True:
        current_run().check()
        time.sleep(0.02)


@task("same.wait", retry=ONCE)
def wait(path: str) -> None:
    """Run until asked to stop."""
    leave(path, "began")
    while True:
        current_run().check()
        time.sleep(0.02)


@task("same.deaf", retry=ONCE)
def deaf(path: str, release: str) -> str:
    """Ignore every request to stop until a file exists."""
    leave(path, "began")
    while not Path(release).exists():
        time.sleep(0.02)
    return "released"


@task("same.progress", retry=ONCE)
def progress(release: str) -> str:
    current_run().progress(1, 4, unit="steps", stage="begun")
    while not Path(release).exists():
        time.sleep(0.02)
    current_run().progress(4, 4, unit="steps", stage="ended")
    return "done"


@task("same.steps", retry=TWICE)
def steps(path: str) -> list[str]:
    """Keep the result of a step over a failure."""
    run = current_run()
    first = run.step("first", lambda: (leave(path, "first"), f"of attempt {run.attempt}")[1])
    if run.attempt == 1:
        raise ValueError("after the first step")
    second = run.step("second", lambda: (leave(path, "second"), f"of attempt {run.attempt}")[1])
    return [first, second]


@task("same.own_transaction", retry=TWICE)
def own_transaction() -> str:
    """Write a row in the run's own transaction; the row of the first attempt is rolled back."""
    run = current_run()
    with run.transaction() as connection:
        connection.execute("insert into ray_effects (run_id, attempt) values (%s, %s)", [run.id, run.attempt])
    if run.attempt == 1:
        raise ValueError("after the row was written")
    return "written"


@task("same.parent", retry=TWICE)
def parent(queue: str) -> dict[str, str]:
    """Submit two children on each attempt; the second attempt finds those of the first."""
    run = current_run()
    made = {
        name: run.submit("same.succeed", {"text": name}, key=name, queue=queue, priority=10) for name in ("one", "two")
    }
    if run.attempt == 1:
        raise ValueError("after the children were submitted")
    return made


@task("same.large", retry=ONCE)
def large(size: int) -> str:
    return "x" * size


@task("same.log", retry=ONCE)
def log(word: str) -> str:
    current_run().log(f"begun {word}")
    current_run().log(f"careful {word}", level="warning")
    return word


@task("same.square", retry=ONCE)
def square(view: View) -> int:
    return sum(value * value for value in view.read())


@task("same.total", retry=ONCE)
def total(results: Sequence[Any]) -> int:
    return sum(results)


@task("same.map", retry=ONCE)
def map_and_collect(queue: str) -> str:
    options = {"queue": queue}
    handle = sync.map("same.square", range(6), chunk_size=3, options=options)
    return sync.collect(handle, into="same.total", options=options).id
