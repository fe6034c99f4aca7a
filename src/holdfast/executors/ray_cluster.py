"""The interface of a Ray cluster for the executor that uses actors. Actors are identified by name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from holdfast.domain.execution import ExecutorContext

if TYPE_CHECKING:
    from holdfast.executors.ray_pool import Shape


class ActorGone(Exception):
    """An actor, its node or its cluster is gone or unavailable; `kind` is the name of Ray's error."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RayGone(ActorGone):
    """There is no connection to the cluster."""


class Cluster(Protocol):
    """A connection to a cluster. The calls raise ActorGone, or RayGone once the connection is lost (`gone`)."""

    address: str
    gone: asyncio.Event

    async def start(self, name: str, shape: Shape, context: ExecutorContext, owner: str) -> dict[str, str] | None:
        """Create or find the actor with this name, for this owner. Return where it is, or None if it is busy."""

    def exchange(self, name: str, owner: str, data: bytes, wait: float) -> asyncio.Future[bytes | None]:
        """Send messages to an actor; its messages follow, within `wait` if nothing else is sent before. None if it has
        another owner."""

    def deliver(self, name: str, owner: str, data: bytes) -> None:
        """Send messages to an actor during an exchange, after those that were sent before."""

    def kill(self, name: str) -> None:
        """Kill an actor. It is no error if it is already gone."""

    def kill_all(self) -> None:
        """Kill every actor. May be called from any thread."""

    async def answers(self) -> bool:
        """Whether the cluster responds."""

    async def close(self) -> None:
        """Kill the actors and disconnect, within seconds, even if Ray does not respond."""
