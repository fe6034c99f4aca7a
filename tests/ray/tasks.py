"""Tasks that run on Ray in tests. Each appends a line to a file whenever it runs."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from holdfast import Retry, current_run, task

STEP = 32 * 1024 * 1024


def leave(path: str, line: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@task("ray.note")
def note(path: str, text: str) -> dict[str, object]:
    """Append a line, and return where this runs."""
    leave(path, text)
    run = current_run()
    return {"text": text, "attempt": run.attempt, "pid": os.getpid()}


@task("ray.wait", retry=Retry(max_attempts=2, delays=(0.0,)), timeout=timedelta(minutes=5))
def wait(path: str, until: str) -> str:
    """Run until a file exists."""
    leave(path, f"attempt {current_run().attempt}")
    print(f"printed by attempt {current_run().attempt}")
    while not Path(until).exists():
        current_run().check()
        time.sleep(0.05)
    return "done"


@task("ray.break", retry=Retry(max_attempts=2, delays=(0.0,)))
def break_once(path: str) -> str:
    """Fail the first time."""
    number = current_run().attempt
    leave(path, f"attempt {number}")
    if number == 1:
        raise KeyError("the first attempt breaks")
    return "mended"


@task("ray.die_once", retry=Retry(max_attempts=2, delays=(0.0,)))
def die_once(path: str) -> str:
    """Kill the process, the first time."""
    leave(path, f"attempt {current_run().attempt}")
    if current_run().attempt == 1:
        os._exit(9)
    return "alive"


@task("ray.grow_once", retry=Retry(max_attempts=3, delays=(0.0,)))
def grow_once(path: str, most: int) -> str:
    """Take more and more memory, up to so many bytes, the first time."""
    leave(path, f"attempt {current_run().attempt}")
    taken: list[bytes] = []
    while current_run().attempt == 1 and len(taken) * STEP < most:
        taken.append(b"x" * STEP)
        time.sleep(0.02)
    return f"{len(taken)} steps"


@task("ray.on_second", retry=Retry(max_attempts=2, delays=(0.0,)), resources={"cpu": 1, "custom": {"second": 1}})
def on_second(path: str, until: str) -> str:
    """Like `ray.wait`, but only on the second node."""
    leave(path, f"attempt {current_run().attempt}")
    while not Path(until).exists():
        current_run().check()
        time.sleep(0.05)
    return "done"
