"""What runs on Ray in tests. Each leaves a line in a file for each time its body runs."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from holdfast import Retry, current_run, task


def leave(path: str, line: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@task("ray.note")
def note(path: str, text: str) -> dict[str, object]:
    """Say so in a file, and where."""
    leave(path, text)
    run = current_run()
    return {"text": text, "attempt": run.attempt, "pid": os.getpid()}


@task("ray.wait", retry=Retry(max_attempts=2, delays=(0.0,)), timeout=timedelta(minutes=5))
def wait(path: str, until: str) -> str:
    """Begin, and go on until a file is there."""
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
    """Take the process along, the first time."""
    leave(path, f"attempt {current_run().attempt}")
    if current_run().attempt == 1:
        os._exit(9)
    return "alive"


@task("ray.on_second", retry=Retry(max_attempts=2, delays=(0.0,)), resources={"cpu": 1, "custom": {"second": 1}})
def on_second(path: str, until: str) -> str:
    """Wait as `ray.wait` does, on the second node alone."""
    leave(path, f"attempt {current_run().attempt}")
    while not Path(until).exists():
        current_run().check()
        time.sleep(0.05)
    return "done"
