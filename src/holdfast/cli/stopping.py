"""What a signal does to a command before, and apart from, what the command itself makes of it.

A service is meant to be stopped: SIGTERM ends it with exit code 0, also while it is still starting. Any other command
did not do what it was called for, and ends with 128 and the signal's number. Either way it unwinds: by default most
signals end Python without that, which would leave an embedded server behind.

This is imported before anything else of the command line, so that there is hardly a moment without it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from holdfast.signals import requested

SERVICES = ("worker", "up", "api", "sweep")
# Options that stand before the command and are followed by a value.
_WITH_VALUE = ("--url", "--token")

# Whether this process is a service.
_serving = False


def unwind_on_signals(arguments: Sequence[str]) -> None:
    """From now on raise SystemExit, or KeyboardInterrupt, when a signal asks this process to end."""
    global _serving
    _serving = is_service(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(ValueError):  # not the main thread: then the signals are not ours
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
    """The exit code, if a signal asked this process to end."""
    return _code(requested[-1]) if requested else None


def _code(number: int) -> int:
    return 0 if _serving and number == signal.SIGTERM else 128 + number


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    first = not requested
    requested.append(number)
    if first and _serving:
        # What unwinds now has to come to its end: a second request must not leave an embedded server behind.
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(_code(number))
