"""The start of a command: signal handling until the command installs its own handlers, and streams that are closed.

Services are stopped with SIGTERM, so they exit with 0, even while they start. Any other command was interrupted and
exits with 128 plus the number of the signal. Either way the stack unwinds: by default most signals end Python without
unwinding, which would leave an embedded server running.

The command line imports this module first, so that the handlers are in place as early as possible.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from holdfast.processes.signals import requested

SERVICES = ("worker", "up", "api", "sweep")
# Options that come before the command and take a value.
_WITH_VALUE = ("--url", "--token")

# Whether this process is a service.
_serving = False


def unwind_on_signals(arguments: Sequence[str]) -> None:
    """Raise SystemExit or KeyboardInterrupt when a signal requests this process to stop."""
    global _serving
    _serving = is_service(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(ValueError):  # not in the main thread: keep the signal handlers
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, _leave)


def is_service(arguments: Sequence[str]) -> bool:
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word in SERVICES
    return False


def stopped_with() -> int | None:
    """Return the exit code if a signal requested this process to stop."""
    return _code(requested[-1]) if requested else None


def _code(number: int) -> int:
    return 0 if _serving and number == signal.SIGTERM else 128 + number


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    first = not requested
    requested.append(number)
    if first and _serving:
        # Let the unwinding finish: a second signal must not leave an embedded server running.
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(_code(number))


def open_missing_streams() -> None:
    """Open the null device for each closed standard stream.

    Otherwise the next file or connection to be opened would get the stream's descriptor, and receive what libraries and
    child processes write to it. `sys.stdin` stays None, so that a command that needs input can say that there is none.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)  # the lowest one that is free
            os.set_inheritable(opened, True)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
