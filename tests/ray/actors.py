"""A fake cluster controlled by the test, for events that a real one cannot produce at a chosen moment."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.domain.execution import Ended, ExecutorContext, Limits
from holdfast.domain.values import Claim
from holdfast.executors.ray_messages import frame, messages_of
from holdfast.executors.ray_pool import Shape


class FakeCluster:
    """Records what its actors receive. Each exchange waits for a response from the test: messages, or an error."""

    address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.given: list[Any] = []
        self.calls = 0
        self.answers_of_actors: asyncio.Queue[list[Any] | BaseException] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self.shapes: list[Shape] = []
        self.closed = False

    async def start(self, name: str, shape: Shape, context: ExecutorContext, owner: str) -> dict[str, str] | None:
        self.shapes.append(shape)
        return {"ray_actor_id": "actor", "ray_node_id": "node"}

    def exchange(self, name: str, owner: str, data: bytes, wait: float) -> asyncio.Future[bytes | None]:
        self.calls += 1
        self.given += messages_of(data)
        return asyncio.ensure_future(self._answer(wait))

    async def _answer(self, wait: float) -> bytes | None:
        if not wait:
            return frame([])
        async with self._turn:  # exchanges are answered in their order
            answer = await self.answers_of_actors.get()
        if isinstance(answer, BaseException):
            raise answer
        return frame(answer)

    def deliver(self, name: str, owner: str, data: bytes) -> None:
        self.calls += 1
        self.given += messages_of(data)

    def kill(self, name: str) -> None:
        """Do nothing: the test decides when an exchange fails."""

    def kill_all(self) -> None:
        """Do nothing, like `kill`."""

    async def answers(self) -> bool:
        return True

    async def close(self) -> None:
        self.closed = True


def context_of(reported: list[Ended]) -> ExecutorContext:
    """The context of a worker that only collects reports."""
    services: Any = None
    store: Any = None
    return ExecutorContext(services, reported.extend, store, Limits(grace=0.1), "", (), "")


def claim_of(run_id: str, number: int = 1, task: str = "mock") -> Claim:
    return Claim(run_id, number, 0, task, "default", "{}", b"", None, 0, 0.0, None, None, 0, "")
