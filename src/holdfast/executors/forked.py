"""A child process that its worker has forked (`holdfast.executors.early_child`), as the worker sees it."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from typing import NamedTuple

from holdfast.executors.shared_state import SharedState


class Forked:
    """A process that was forked, with those methods of `Popen` that a worker calls."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self, options: int = os.WNOHANG) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self) -> int:
        return self.poll(0) or 0

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class EarlyChild(NamedTuple):
    process: Forked
    socket: socket.socket
    state: SharedState
