"""Tasks that record every execution, for RQ workers."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from holdfast import Retry, current_run, task


def say(path: str, text: object) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@task("note")
def note(path: str) -> int:
    """Append a line for each execution."""
    say(path, current_run().attempt)
    return current_run().attempt


@task("hold_first")
def hold_first(path: str) -> int:
    """The first attempt runs until it is stopped or killed; later ones return."""
    run = current_run()
    say(path, f"{run.attempt} {os.getpid()}")
    step = 0
    while run.attempt == 1:
        run.progress(step := step + 1)
        time.sleep(0.02)
    return run.attempt


@task("hold_until")
def hold_until(path: str, gate: str) -> int:
    """Run until the gate file exists."""
    say(path, current_run().attempt)
    while not Path(gate).exists():
        current_run().check()
        time.sleep(0.02)
    return current_run().attempt


@task("fail_once", retry=Retry(max_attempts=2, delays=(0.1,)))
def fail_once(path: str) -> int:
    say(path, current_run().attempt)
    if current_run().attempt == 1:
        raise ValueError("the first time always fails")
    return current_run().attempt


@task("too_long", timeout=timedelta(seconds=0.3), retry=Retry(max_attempts=1))
def too_long(path: str) -> None:
    say(path, "began")
    while True:
        time.sleep(60)
