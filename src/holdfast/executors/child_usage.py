"""Limits of a child process: when it should be replaced.

A run can leave its process in a state in which later runs fail through no fault of their own, because memory,
descriptors or threads are exhausted. A child therefore checks itself between runs, too rarely to cost anything, and
immediately after a failure, and asks to be replaced if necessary.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from time import monotonic

from holdfast.domain.execution import ChildLimits

CHECK_MEMORY_EVERY = 1.0
CHECK_COUNTS_EVERY = 0.02
MOST_THREADS = 100

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# Messages of errors that were created from an errno, for instance by C libraries.
_EXHAUSTED_TEXTS = ("Too many open files", "Cannot allocate memory", "can't start new thread")


class ChildUsage:
    """Compares this process with its state at the start."""

    def __init__(self, limits: ChildLimits) -> None:
        now = monotonic()
        self._limits = limits
        self._began_at = self._memory_checked_at = self._counted_at = now
        self._memory = memory()
        self._descriptors = descriptors()
        self._most_descriptors = self._descriptors + _descriptors_left(limits.descriptors, self._descriptors)
        self._threads = self._threads_before = threading.active_count()
        self._suspicion: str | None = None
        self._check_now = False

    def failed(self, error: BaseException) -> None:
        """Record that a run failed: check the process before the next run."""
        self._check_now = True
        if is_exhaustion(error):
            self._suspicion = (
                f"a run failed because it ran out of memory, file descriptors or threads ({type(error).__name__})"
            )
        elif threading.active_count() > self._threads_before:  # at the last count
            self._suspicion = "a run that failed left threads behind"
        elif has_processes():
            self._suspicion = "a run that failed left processes behind"

    def check(self, now: float) -> str | None:
        """Return the reason to replace this process, or None."""
        if now - self._counted_at < CHECK_COUNTS_EVERY and not self._check_now:
            return None
        self._counted_at = now
        check_memory = self._check_now or now - self._memory_checked_at >= CHECK_MEMORY_EVERY
        self._check_now = False
        found = self._suspicion or self._check_counts()
        if found is None and check_memory:
            self._memory_checked_at = now
            found = self._check_memory(now)
        return found

    def _check_counts(self) -> str | None:
        self._threads_before = threading.active_count()
        open_now = descriptors()
        if open_now > self._most_descriptors:
            return f"it has {open_now} open file descriptors, up from {self._descriptors} at its start"
        return None

    def _check_memory(self, now: float) -> str | None:
        grown = memory() - self._memory
        if grown > self._limits.memory:
            return f"its memory grew by {grown} bytes"
        threads = threading.active_count()
        if threads - self._threads > MOST_THREADS:
            return f"it has {threads} threads, up from {self._threads} at its start"
        if self._limits.age is not None and now - self._began_at > self._limits.age:
            return f"it is older than {self._limits.age:g} s"
        return None


def is_exhaustion(error: BaseException) -> bool:
    """Whether the error, or one of its causes, says that a resource of the process is exhausted."""
    return any(_is_exhaustion(one) for one in _chain(error))


def _is_exhaustion(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        return True
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - the message is user code
        return False
    return any(text in said for text in _EXHAUSTED_TEXTS)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions


def memory() -> int:
    """Return the memory of this process in bytes; 0 if it cannot be read."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - read every second
            return int(file.read().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0


def descriptors() -> int:
    """Return the number of open descriptors. If none is left to open the directory, the limit has been reached."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(directory))  # noqa: PTH208 - the quickest, and this is done often
        except OSError as error:
            if error.errno in _EXHAUSTED:
                return 1 << 30
    return 0


def has_processes() -> bool:
    """Whether a process that this one started still runs."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    if ended is None:
        return True
    from holdfast.processes.family import alive, children

    return bool(alive(children(os.getpid())))


def _descriptors_left(wanted: int, used: int) -> int:
    """Return how many more descriptors may be opened: the configured number, at most half of the system's limit."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, (soft - used) // 2))
