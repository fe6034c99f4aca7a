"""The worker's end of a doorbell: hints that a queue has runs, or that a run of this worker has to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

# A hint is the name of a queue, or this prefix and the id of a worker.
STOP = "stop:"


class Listener(Protocol):
    """Receives hints. A hint may be lost: the worker also looks by itself."""

    live: bool
    """False while no hints can be received; the worker then looks more often."""

    async def listen(self, received: Callable[[frozenset[str]], None], /) -> None:
        """Call `received` with the hints that arrive, until cancelled. Never raises.

        It is called with an empty set when the listener begins to receive: there may have been hints before.
        """
