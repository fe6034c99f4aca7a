"""Tasks that finish, fail, hang, crash, or kill their process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.domain.context import current_run
from holdfast.domain.errors import Fatal, Postpone
from holdfast.domain.policies import Retry
from holdfast.domain.tasks import task

# Imported by those tasks that use it: importing it takes a fifth of the time in which a child starts.
if TYPE_CHECKING:
    import asyncio

QUICK = Retry(max_attempts=3, delays=(0.05,))


def say(path: str, text: Any) -> None:
    """Append a line that the test can read, whatever happens to this process next."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@task("echo", retry=QUICK)
def echo(value: Any = None) -> Any:
    return value


@task("only_attempt", retry=Retry(max_attempts=1))
def only_attempt(marks: str) -> None:
    say(marks, "ran")


@task("process_echo", retry=QUICK, executor="process")
def process_echo(value: Any = None) -> Any:
    return value


@task("inline_echo", retry=QUICK, executor="inline")
def inline_echo(value: Any = None) -> Any:
    return [value, threading.current_thread().name]


@task("talks", retry=QUICK)
def talks(value: int, until: str | None = None) -> int:
    run = current_run()
    while until is not None and not Path(until).exists():
        threading.Event().wait(0.01)
    run.log(f"this is {value}")
    run.progress(1, 1)
    return value


@task("postpones", retry=Retry(max_attempts=1))
def postpones(times: int, seconds: float) -> int:
    attempt = current_run().attempt
    if attempt <= times:
        raise Postpone(timedelta(seconds=seconds))
    return attempt


@task("fail", retry=QUICK)
def fail(times: int = 1) -> int:
    run = current_run()
    if run.attempt <= times:
        raise ConnectionError(f"attempt {run.attempt} of {times} that fail")
    return run.attempt


@task("fatal", retry=QUICK)
def fatal() -> None:
    raise Fatal("this cannot work")


@task("denied", retry=Retry(max_attempts=3, delays=(0.05,), no_retry_on=(LookupError,)))
def denied() -> None:
    raise KeyError("a subclass of what is denied")


@task("nasty", retry=Retry(max_attempts=1))
def nasty() -> None:
    secret = "a local value"  # noqa: F841
    raise ValueError("NUL \0 and half a pair \ud800" + "x" * 100_000)


@task("hang", retry=QUICK)
def hang(started: str) -> None:
    """Wait forever in Python, without checking for a request to stop."""
    say(started, os.getpid())
    threading.Event().wait()


@task("spin", retry=QUICK)
def spin(started: str) -> None:
    """Hold the GIL in C, so that no signal handler and no other thread runs."""
    say(started, os.getpid())
    sum(range(10**15))


@task("deaf", retry=QUICK)
def deaf(started: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(started, os.getpid())
    while True:
        threading.Event().wait(0.01)


@task("patient", retry=QUICK)
def patient(started: str, until: str | None = None, report: bool = True) -> str:
    """Work until a file exists, reporting progress, which raises if the run is cancelled."""
    run = current_run()
    say(started, f"{run.attempt} {os.getpid()}")
    done = 0
    while until is None or not Path(until).exists():
        done += 1
        if report:
            run.progress(done, unit="looks")
        threading.Event().wait(0.01)
    return f"attempt {run.attempt} in {os.getpid()}"


@task("tidy", retry=QUICK)
def tidy(started: str, cleaned: str) -> None:
    """Never check for a request to stop, and clean up when interrupted."""
    say(started, os.getpid())
    try:
        while True:
            threading.Event().wait(0.01)
    finally:
        say(cleaned, "clean")


@task("leave", retry=QUICK)
def leave(code: int, started: str) -> None:
    say(started, os.getpid())
    os._exit(code)


@task("leave_once", retry=Retry(max_attempts=3, delays=(30,)))
def leave_once(code: int) -> int:
    run = current_run()
    if run.attempt == 1:
        os._exit(code)
    return run.attempt


@task("segfault", retry=Retry(max_attempts=1))
def segfault() -> None:
    ctypes.string_at(0)


@task("system_exit", retry=Retry(max_attempts=1))
def system_exit() -> None:
    sys.exit(7)


@task("deep", retry=Retry(max_attempts=1))
def deep(n: int = 0) -> int:
    return deep.fn(n + 1)


@task("returns", retry=QUICK)
def returns(what: str, size: int = 0) -> Any:
    return {
        "nan": float("nan"),
        "nul": "a\0b",
        "surrogate": "\ud800",
        "object": object(),
        "large": "x" * size,
    }[what]


@task("prints", retry=QUICK)
def prints() -> str:
    print("from user code, to be kept out of the frames")
    sys.stdout.write("\x00\x01\x02 not a frame")
    sys.stdout.flush()
    return "printed"


@task("with_child_process", retry=QUICK)
def with_child_process(started: str) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    say(started, f"{os.getpid()} {child.pid}")
    threading.Event().wait()


@task("stepping", retry=QUICK)
def stepping(calls: str, fail_times: int = 1) -> Any:
    run = current_run()

    def once() -> dict[str, Any]:
        say(calls, "called")
        return {"pair": (1, 2), "attempt": run.attempt}

    kept = run.step("once", once)
    if run.attempt <= fail_times:
        raise ConnectionError("after the step")
    return [kept, run.attempt]


@task("writing", retry=QUICK)
def writing(table: str, fail_times: int = 0, wait: str | None = None, started: str | None = None, size: int = 0) -> str:
    """Write a row in the run's own transaction."""
    run = current_run()
    with run.transaction() as connection:
        connection.execute(f"insert into {table} (attempt) values ({run.attempt})")
    try:
        with run.transaction() as connection:
            connection.execute(f"insert into {table} (attempt) values (-1)")
            raise LookupError("undo this block alone")
    except LookupError:
        pass
    if started:
        say(started, run.attempt)
    while wait and not Path(wait).exists():
        threading.Event().wait(0.01)
    if run.attempt <= fail_times:
        raise ConnectionError("undo everything")
    return "x" * size


@task("parent", retry=QUICK)
def parent(fail_times: int = 0) -> list[str]:
    run = current_run()
    children = [
        run.submit("echo", {"value": 1}),
        run.submit(echo, {"value": 2}, key="second", priority=5),
        run.submit("echo", {"value": 3}),
    ]
    if run.attempt <= fail_times:
        raise ConnectionError("after having submitted")
    return children


@task("logging", retry=QUICK)
def logging() -> None:
    run = current_run()
    run.log("first line")
    run.log("NUL \0 here", level="warning")
    run.progress(1, 2, unit="halves", stage="one")
    run.progress(2, 2, unit="halves", stage="two")


@task("about", retry=QUICK)
def about(x: int = 0) -> Any:
    run = current_run()
    return [run.id, run.attempt, run.token, run.task, run.parameters, run.payload_hash, run.job_id]


@task("extending", retry=QUICK)
def extending(extended: str, until: str) -> str:
    from datetime import timedelta

    current_run().extend(timedelta(hours=1))
    say(extended, "extended")
    while not Path(until).exists():
        threading.Event().wait(0.01)
    return "in time"


_meetings: dict[str, asyncio.Barrier] = {}


@task("meeting", retry=QUICK, executor="inline")
async def meeting(room: str, others: int) -> int:
    """Return only when this many runs are executed at the same time."""
    import asyncio

    await _meetings.setdefault(room, asyncio.Barrier(others)).wait()
    return others


@task("async_forever", retry=QUICK)
async def async_forever(started: str, cleaned: str) -> None:
    import asyncio

    say(started, os.getpid())
    try:
        await asyncio.Event().wait()
    finally:
        say(cleaned, "clean")


@task("async_steps", retry=QUICK)
async def async_steps(value: int) -> Any:
    import asyncio

    async def double() -> int:
        await asyncio.sleep(0)
        return 2 * value

    return await current_run().step("double", double)


@task("waiting_step", retry=QUICK)
def waiting_step(started: str, go: str) -> str:
    """Request a step once a file exists."""
    say(started, "waiting")
    while not Path(go).exists():
        threading.Event().wait(0.01)
    say(started, "asking")
    return current_run().step("late", lambda: "stepped")


@task("moody", retry=QUICK)
def moody(value: int, until: str | None = None) -> int:
    """Usually tiny."""
    while until is not None and not Path(until).exists():
        threading.Event().wait(0.01)
    return value


@task("pid", retry=QUICK)
def pid() -> int:
    return os.getpid()


@task("failing_meeting", retry=Retry(max_attempts=1), executor="inline")
async def failing_meeting(room: str, others: int) -> int:
    """Fail once this many runs are executed at the same time."""
    import asyncio

    await _meetings.setdefault(room, asyncio.Barrier(others)).wait()
    raise Fatal("this meeting failed")


@task("hang_at_the_only_attempt", retry=Retry(max_attempts=1))
def hang_at_the_only_attempt(started: str) -> None:
    say(started, os.getpid())
    threading.Event().wait()


@task("short_only_attempt", retry=Retry(max_attempts=1))
def short_only_attempt(marks: str) -> None:
    threading.Event().wait(0.002)
    say(marks, "ran")
