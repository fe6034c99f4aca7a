from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import connection

from holdfast import Retry, current_run
from holdfast.django import job_task, task
from holdfast.django.compat import TaskContext
from holdfast.jobs import sync as jobs
from tests.django.app.models import Note


@task
def add(a: float, b: float = 1) -> float:
    return a + b


@task
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@task
async def add_later(a: float, b: float = 1) -> float:
    return a + b


@task(takes_context=True)
def describe(context: TaskContext, label: str) -> dict[str, Any]:
    result = context.task_result
    return {"label": label, "attempt": context.attempt, "workers": result.worker_ids, "status": result.status}


@task(takes_context=True)
async def describe_later(context: TaskContext) -> int:
    return context.attempt


@task
def fail(text: str) -> None:
    raise ValueError(text)


@task
def leave() -> None:
    raise SystemExit(3)


@task
async def leave_later() -> None:
    raise SystemExit(3)


@task(retry=Retry(max_attempts=3, delays=(0,), no_retry_on=(KeyError,)))
def fail_twice() -> int:
    if current_run().attempt < 3:
        raise ConnectionError(f"attempt {current_run().attempt}")
    return current_run().attempt


@task(retry={"max_attempts": 3, "delays": (0,), "no_retry_on": ("builtins.KeyError",)})
def fail_for_good() -> None:
    raise KeyError("gone")


@task(backend="reports", queue_name="anything")
def report() -> None:
    raise ConnectionError("away")


@task(dedupe="active")
def refresh(page: str) -> str:
    return page


@task(timeout=timedelta(seconds=0.3), retry=Retry(max_attempts=1))
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@task
def write_note(text: str) -> int:
    return Note.objects.create(text=text).pk


@task
def unusable() -> object:
    return object()


@task
def pair() -> tuple[int, bytes]:
    return (1, b"two")


@task
def backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return int(cursor.fetchone()[0])


@task
def hang_once(directory: str) -> int:
    """The first attempt writes its process ids to a file, and never returns."""
    attempt = current_run().attempt
    if attempt == 1:
        (Path(directory) / "begun.part").write_text(f"{os.getppid()} {os.getpid()}")
        (Path(directory) / "begun.part").rename(Path(directory) / "begun")
        time.sleep(600)
    return attempt


@task
def wait_for(path: str) -> str:
    """Announce the wait in another file, and return once the file exists."""
    Path(f"{path}.waiting").touch()
    for _ in range(6000):
        if Path(path).exists():
            return "seen"
        time.sleep(0.02)
    raise TimeoutError(path)


@task
def count_to(total: int) -> int:
    for done in range(total):
        current_run().progress(done + 1, total, unit="steps")
    return total


@task
def spread(count: int) -> str | None:
    """Add this many tasks to its job."""
    for number in range(count):
        jobs.add_task_to_current_job(**job_task(write_note, f"part {number}"))
    return jobs.get_current_job_id()
