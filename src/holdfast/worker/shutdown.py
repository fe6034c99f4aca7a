"""Signals: the first asks to stop, the second to hurry. A handler only says so; nothing depends on its running."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop`, in the loop, at each SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)
