"""The worker's side of a doorbell: it receives hints that a queue has runs, or that one of its runs has to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

# A hint is the name of a queue, or one of these prefixes: followed by the id of a worker, or by a claim.
STOP = "stop:"
HANDED = "handed:"
# While a connection listens, it holds the advisory lock with this class and the id of its server process as key.
LISTENING = 18_431_207


class Address(NamedTuple):
    """The address of a single worker: a channel, and the server process of the connection that listens to it."""

    channel: str
    listener: int


class Ring(NamedTuple):
    """A ready run, and the number of its next attempt."""

    run_id: str
    number: int
    queue: str

    @property
    def job_id(self) -> str:
        return f"{self.run_id}-{self.number}"


class Listener(Protocol):
    """Receives hints. The worker polls for whatever the listener misses."""

    live: bool
    """False while no hint can arrive; the worker then polls more often."""

    @property
    def address(self) -> Address | None:
        """Where runs can be handed to this worker; None while they cannot."""

    async def listen(self, on_hints: Callable[[frozenset[str]], None], /) -> None:
        """Pass received hints to `on_hints` until cancelled. Never raises.

        Passes an empty set when it starts listening, because earlier hints may have been missed.
        """
