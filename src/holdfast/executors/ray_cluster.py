"""A Ray cluster as the executor of actors sees it. Actors are known by their names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from holdfast.domain.execution import ExecutorContext

if TYPE_CHECKING:
    from holdfast.executors.ray_pool import Shape


class ActorGone(Exception):
    """An actor, its node or its cluster is gone, or cannot be had; `kind` is the name of Ray's error."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RayGone(ActorGone):
    """There is no connection to the cluster."""


class Cluster(Protocol):
    """A connection to a cluster. The calls raise ActorGone, or RayGone once the connection is lost (`gone`)."""

    address: str
    gone: asyncio.Event

    async def start(self, name: str, shape: Shape, place: ExecutorContext, owner: str) -> dict[str, str] | None:
        """Make an actor, or find the one of this name, for this owner; say where it is. None if it is busy."""

    async def exchange(self, name: str, owner: str, data: bytes, wait: float) -> bytes | None:
        """Send messages to an actor and return its own, waiting so long for the first. None if it has another owner."""

    def deliver(self, name: str, owner: str, data: bytes) -> None:
        """Send messages to an actor while an exchange waits."""

    def kill(self, name: str) -> None:
        """Kill an actor; one that is gone already is no error."""

    def kill_all(self) -> None:
        """Kill every actor. May be called from any thread."""

    async def answers(self) -> bool:
        """Whether the cluster is there."""

    async def close(self) -> None:
        """Kill the actors and disconnect, within seconds, even if Ray does not answer."""
