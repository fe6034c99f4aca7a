"""Calls in a forked process."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

DEADLINE = 30.0


class Forked:
    """A fork of this process that makes a call, sends back what it returns or raises, and ends without cleaning up."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._results, sending = os.pipe()
        with warnings.catch_warnings():
            # Python warns about forks of processes that have threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            try:
                os.write(sending, pickle.dumps(_outcome(call)))
            finally:
                os._exit(0)
        os.close(sending)

    def result(self) -> Any:
        """Return what the call returned, or raise what it raised. Kill the process after the deadline."""
        ends = time.monotonic() + DEADLINE
        received = b""
        try:
            while select.select([self._results], [], [], max(0.0, ends - time.monotonic()))[0]:
                piece = os.read(self._results, 65536)
                if not piece:
                    break
                received += piece
            else:
                raise AssertionError(f"the forked process did not end within {DEADLINE} s")
        finally:
            os.close(self._results)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        error, value = pickle.loads(received)
        if error is not None:
            raise AssertionError(f"in the forked process: {error}")
        return value


def _outcome(call: Callable[[], Any]) -> tuple[str | None, Any]:
    try:
        return None, call()
    except BaseException as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}", None
