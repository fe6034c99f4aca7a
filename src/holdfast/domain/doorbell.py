"""The worker's side of a doorbell: it may hear that a queue has runs, or that one of its own was asked to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

# A hint is the name of a queue, or this and a worker's id.
STOP = "stop:"


class Listener(Protocol):
    """Hears hints. What it misses the worker finds by itself."""

    live: bool
    """False while nothing can be heard; the worker then looks more often."""

    async def listen(self, heard: Callable[[frozenset[str]], None]) -> None:
        """Tell what is heard, until cancelled. Never raises.

        Nothing, an empty set, is told when it begins to hear: there may have been hints before.
        """
