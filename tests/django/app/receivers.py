"""Receivers that write each signal as a line of a file, for tests whose workers are other processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.django.compat import task_enqueued, task_finished, task_started

FILE_VARIABLE = "DJANGO_TEST_SIGNALS"


def _write(name: str, sender: Any, task_result: Any) -> None:
    line = f"{name} {sender.__name__} {task_result.task.name} {task_result.status} {task_result.attempts}\n"
    with Path(os.environ[FILE_VARIABLE]).open("a") as file:
        file.write(line)


def on_enqueued(sender: Any, task_result: Any, **kwargs: Any) -> None:
    _write("enqueued", sender, task_result)


def on_started(sender: Any, task_result: Any, **kwargs: Any) -> None:
    _write("started", sender, task_result)


def on_finished(sender: Any, task_result: Any, **kwargs: Any) -> None:
    _write("finished", sender, task_result)


def connect() -> None:
    if FILE_VARIABLE in os.environ:
        task_enqueued.connect(on_enqueued)
        task_started.connect(on_started)
        task_finished.connect(on_finished)
