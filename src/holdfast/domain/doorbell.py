"""The worker's side of a doorbell: it receives hints that a queue has runs, or that one of its runs has to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

# A hint is either the name of a queue, or this prefix followed by the id of a worker.
STOP = "stop:"


class Listener(Protocol):
    """Receives hints. The worker finds by polling what the listener misses."""

    live: bool
    """False while no hint can arrive; the worker then polls more often."""

    async def listen(self, on_hints: Callable[[frozenset[str]], None], /) -> None:
        """Pass received hints to `on_hints` until cancelled. Never raises.

        Passes an empty set when it starts listening, because earlier hints may have been missed.
        """
