"""Clients in forked processes.

A forked process inherits its parent's sockets and locks, but not the threads that use them. If two processes use one
socket, each reads responses meant for the other, and a lock that another thread held at the fork is never released. So
a process opens its own connections, and never uses, closes or locks those of its parent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.domain.errors import ConfigurationError

T = TypeVar("T")

_opening = threading.Lock()


def _replace_lock() -> None:
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_replace_lock)


class PerProcess(Generic[T]):
    """A resource that is opened immediately, and again in each forked process that uses it."""

    def __init__(self, open_one: Callable[[], T]) -> None:
        self._open_one = open_one
        self._inherited: list[T] = []
        self.current = open_one()
        """The resource of process `pid`."""
        self.pid = os.getpid()

    def get(self) -> T:
        """Return this process's resource; open it if there is none."""
        if self.pid != os.getpid():
            self._open()
        return self.current

    def opened(self) -> T | None:
        """Return this process's resource if it has opened one."""
        return self.current if self.pid == os.getpid() else None

    def _open(self) -> None:
        with _opening:
            if self.pid == os.getpid():
                return
            opened = self._open_one()
            # Deleting the parent's resource could close it.
            self._inherited.append(self.current)
            self.current = opened
            self.pid = os.getpid()


def require_process(pid: int, what: str, advice: str) -> None:
    """Raise ConfigurationError unless this process is `pid`, which opened `what`."""
    if pid != os.getpid():
        raise ConfigurationError(
            f"{what} was opened in process {pid} and cannot be used in its fork, process {os.getpid()}: "
            f"both would use the same connections; {advice}"
        )
