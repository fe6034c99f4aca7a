"""Tasks that harm the process they run in, for the next run in that process."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.domain.context import current_run
from holdfast.domain.policies import Retry
from holdfast.domain.tasks import task
from tests.integration.worker_tasks import QUICK, say

_leaked: list[Any] = []


@task("stops_before_sending", retry=QUICK)
def stops_before_sending(value: int, stop: bool = False) -> int:
    """Have the whole process suspended after this run has ended and before it reports that to the worker."""
    if stop:
        from holdfast.executors.child_link import ChildLink

        ChildLink.flush = lambda self: os.kill(os.getpid(), signal.SIGSTOP)  # type: ignore[method-assign]
    return value


@task("stops_itself", retry=Retry(max_attempts=1), timeout=timedelta(seconds=0.2))
def stops_itself() -> None:
    """Suspend the whole process in the middle of this run."""
    os.kill(os.getpid(), signal.SIGSTOP)


@task("stops_reading", retry=QUICK)
def stops_reading() -> int:
    """Make the thread that reads from the worker exit."""
    from holdfast.executors import child

    child.Assignment._make = None  # type: ignore[assignment, method-assign]
    return os.getpid()


@task("grips", retry=QUICK)
def grips(value: int, until: str | None = None) -> int:
    """Usually tiny; or hold the GIL, so that no other thread runs, until a file exists."""
    if until is not None:
        system = ctypes.PyDLL(None)
        sys.setswitchinterval(1000)
        while system.access(until.encode(), 0):
            system.usleep(1000)
        sys.setswitchinterval(0.005)
        return os.getpid()
    return value


@task("starts_processes", retry=QUICK)
def starts_processes(started: str, ends: str = "never") -> None:
    """Start a process, one in a separate session, and one that is forked twice."""
    plain = subprocess.Popen(["sleep", "1000"])
    session = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    twice = subprocess.run(
        ["setsid", "sh", "-c", "sleep 1000 >&- 2>&- & echo $!"], stdout=subprocess.PIPE, text=True, check=True
    )
    say(started, f"{os.getpid()} {plain.pid} {session.pid} {twice.stdout.strip()}")
    if ends == "crash":
        os._exit(3)
    if ends == "failure":
        raise LookupError("with processes left behind")
    if ends == "never":
        threading.Event().wait()


@task("leaks_descriptors", retry=Retry(max_attempts=1))
def leaks_descriptors(fail: bool = False) -> int:
    """Open files until hardly any descriptors are left, and keep them open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            _leaked.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        if fail:
            raise
    for _ in range(8):
        os.close(_leaked.pop())
    return os.getpid()


@task("opens_files", retry=QUICK)
def opens_files(count: int = 20, poison: bool = False) -> int:
    """Need a few descriptors, or use up all of them."""
    if poison:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 8, hard))
        return os.getpid()
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(Path("/dev/null").open())
    return os.getpid()


@task("hoards", retry=QUICK)
def hoards(size: int) -> int:
    """Allocate memory and keep it."""
    _leaked.append(b"x" * size)
    return os.getpid()


@task("fails_and_leaves_a_thread", retry=Retry(max_attempts=1))
def fails_and_leaves_a_thread(pid: str) -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    say(pid, os.getpid())
    raise LookupError("with a thread left behind")


@task("fails_everywhere", retry=QUICK)
def fails_everywhere(pids: str) -> None:
    say(pids, f"{current_run().attempt} {os.getpid()}")
    raise LookupError("wherever it runs")
