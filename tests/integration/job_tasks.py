"""Tasks for tests of jobs: they add tasks, map, collect, fail on request, and append lines to files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import Retry, current_run, jobs, task
from holdfast.jobs import View

QUICK = Retry(max_attempts=3, delays=(0.05,))
ONCE = Retry(max_attempts=1)


def say(path: str, text: Any) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


@task("job.note", retry=QUICK)
def note(path: str, text: Any = "noted") -> Any:
    say(path, text)
    return text


@task("job.fail_unless", retry=ONCE)
def fail_unless(path: str) -> str:
    if not Path(path).exists():
        raise ValueError(f"{path} is not there")
    return "there"


@task("job.hold", retry=ONCE)
def hold(path: str) -> None:
    """Runs until it is asked to stop."""
    say(path, current_run().id)
    while True:
        current_run().progress(1)
        __import__("time").sleep(0.02)


@task("job.grow", retry=QUICK)
async def grow(path: str, depth: int = 1, when: str = "now", fail_first: bool = False) -> int:
    """Add two tasks like this one, and then fail once if requested."""
    say(path, f"{depth}")
    if depth:
        for name in ("left", "right"):
            kwargs = {"path": path, "depth": depth - 1, "when": when}
            await jobs.add_task_to_current_job(entrypoint="job.grow", kwargs=kwargs, when=when, key=name)
    if fail_first and current_run().attempt == 1:
        raise ValueError("after the children were added")
    return depth


@task("job.astray", retry=QUICK)
async def astray(path: str) -> None:
    """Request a task that depends on a run that does not exist."""
    nowhere = "01890000-0000-7000-8000-000000000000"
    await jobs.add_task_to_current_job(
        entrypoint="job.note", kwargs={"path": path}, depends_on=[nowhere], when="finish"
    )


@task("job.grow_unnamed", retry=QUICK)
def grow_unnamed(path: str, children: int) -> None:
    for number in range(children):
        jobs.sync.add_task_to_current_job("job.note", {"path": path, "text": number})
    if current_run().attempt == 1:
        raise ValueError("once")


@task("job.square", retry=QUICK)
def square(view: View, power: int = 2) -> dict[str, Any]:
    rows = view.read()
    assert len(rows) == len(view) == view.limit
    return {"offset": view.offset, "sum": sum(number**power for number in rows)}


@task("job.read", retry=ONCE)
def read(view: View, column: str | None = None) -> list[Any]:
    return [row[column] if column else row for row in view.read()]


@task("job.large", retry=ONCE)
def large(view: View) -> str:
    return "x" * 200_000 + str(view.offset)


@task("job.total", retry=QUICK)
def total(results: Sequence[dict[str, Any]], path: str | None = None) -> dict[str, Any]:
    if path is not None:
        say(path, "total")
    return {"sum": sum(one["sum"] for one in results), "offsets": [one["offset"] for one in results]}


@task("job.lengths", retry=ONCE)
def lengths(results: Sequence[str]) -> list[Any]:
    return [len(results), results[1][-6:], results[-1][-6:], [len(one) for one in results]]


@task("job.chain", retry=ONCE)
def chain(results: Sequence[list[Any]]) -> list[Any]:
    return [value for one in results for value in one]


@task("job.sweep", retry=QUICK)
async def sweep(rows: int, chunk_size: int, path: str | None = None) -> dict[str, Any]:
    """Maps and collects in its own job."""
    handle = await jobs.map("job.square", range(rows), chunk_size=chunk_size, power=1)
    join = await jobs.collect(handle, into="job.total", **({"path": path} if path else {}))
    if current_run().attempt == 1 and path:
        raise ValueError("once, after everything was added")
    return {"tasks": len(handle), "join": join.id}


@task("job.remap", retry=QUICK)
def remap(path: str, first: int, later: int, children: int = 0) -> int:
    """Map over other rows on later attempts, and crash once after everything was added."""
    again = current_run().attempt > 1
    say(path, current_run().attempt)
    handle = jobs.sync.map("job.square", range(later if again else first), chunk_size=1, power=1)
    jobs.sync.collect(handle, into="job.total")
    for number in range(0 if again else children):
        current_run().submit("job.note", {"path": f"{path}.children", "text": number}, key=f"note {number}")
    if not again:
        os._exit(3)
    return len(handle)


@task("job.nest", retry=QUICK)
async def nest(view: View, path: str) -> int:
    """Maps over its own slice."""
    handle = await jobs.map("job.square", view, chunk_size=2, power=1)
    await jobs.collect(handle, into="job.total", path=path)
    return len(handle)


@task("job.fail_some", retry=ONCE)
def fail_some(view: View, path: str, every: int) -> int:
    if view.offset % every == 0 and not Path(path).exists():
        raise ValueError(f"slice {view.offset} fails")
    say(path + ".ran", view.offset)
    return view.offset


@task("job.count", retry=ONCE)
def count(results: Sequence[int], path: str) -> int:
    say(path + ".ran", "join")
    return len(list(results))


@task("myapp.processors.load_and_process_data", retry=QUICK)
async def load_and_process_data(source: str) -> str:
    await jobs.add_task_to_current_job(
        entrypoint="myapp.processors.validate_data", kwargs={"input_obj": f"tbl_{source}"}
    )
    return source


@task("myapp.processors.validate_data", retry=QUICK)
async def validate_data(input_obj: str) -> str:
    return input_obj


@task("myapp.process", retry=QUICK)
def process(data: str) -> str:
    return data
