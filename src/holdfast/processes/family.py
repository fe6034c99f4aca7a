"""Processes and their descendants: finding and killing them, and stopping together with the parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType

from holdfast.processes.signals import requested

STOPPING = (signal.SIGTERM, signal.SIGINT)
WATCH_EVERY = 0.5
POLL_EVERY = 0.02


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    return [child for child, parent in _parents().items() if parent == pid]


def family(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    parents = _parents()
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def kill_family(pid: int) -> list[int]:
    """Kill a process and all its descendants with SIGKILL. Return their ids."""
    members = family(pid)
    for member in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)
    return members


def alive(pids: Iterable[int]) -> list[int]:
    """Return those of the processes that are still running; zombies do not count."""
    states = {pid: state for pid, _, state in _table()}
    return [pid for pid in pids if states.get(pid, "Z") != "Z"]


def wait_gone(pids: Iterable[int], seconds: float) -> list[int]:
    """Wait until none of the processes is running. Return those that still are."""
    ends = time.monotonic() + seconds
    left = alive(pids)
    while left and time.monotonic() < ends:
        time.sleep(POLL_EVERY)
        left = alive(left)
    return left


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the block is done, because it must not be interrupted."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            os.kill(os.getpid(), came[0])


@contextlib.contextmanager
def loop_signals(call: Callable[[], None]) -> Iterator[None]:
    """Call this in the running loop at each SIGTERM or SIGINT, and immediately if one was received before.

    The previous handlers are restored afterwards.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in STOPPING}
    for number in STOPPING:
        loop.add_signal_handler(number, call)
    if requested:
        loop.call_soon(call)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:
                signal.signal(number, handler)


def stop_with_parent(parent: int) -> None:
    """Send this process SIGTERM as soon as `parent`, which started it, has ended for any reason.

    The parent passes its own id, because it may already have ended when this is called.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_EVERY)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="holdfast-parent", daemon=True).start()


def _parents() -> Mapping[int, int]:
    return {pid: parent for pid, parent, _ in _table()}


def _table() -> list[tuple[int, int, str]]:
    """Return each process with its parent and its state."""
    if Path("/proc/self/stat").exists():
        return [row for entry in Path("/proc").iterdir() if entry.name.isdecimal() for row in _row(entry)]
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)  # noqa: S607
    return [(int(pid), int(parent), state[0]) for pid, parent, state in map(str.split, listed.stdout.splitlines())]


def _row(entry: Path) -> list[tuple[int, int, str]]:
    with contextlib.suppress(OSError):
        # The command name is in parentheses and may itself contain parentheses and spaces.
        state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        return [(int(entry.name), int(parent), state)]
    return []
