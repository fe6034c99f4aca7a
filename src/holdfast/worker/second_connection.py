"""SecondConnection: a second turn at the database while the first is under way, on a connection of its own.

The connection is made when it is first wanted, and nothing waits for it. A while after something went wrong with it,
there are no second turns: they are for speed alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from holdfast.worker.database import Database

REST = 30.0
LAST_ANSWER = 2.0


class SecondConnection:
    def __init__(self, database: Database) -> None:
        self.database = database
        self._turn: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._not_before = 0.0

    @property
    def under_way(self) -> bool:
        return self._turn is not None

    @property
    def failed(self) -> bool:
        """It ended with an error that nobody has heard of yet: `alone` raises it."""
        return self._turn is not None and self._turn.done()

    def ready(self) -> bool:
        """Whether a turn could be taken now."""
        if self._turn is not None or monotonic() < self._not_before:
            return False
        if not self.database.connected and self._connecting is None:
            self._connecting = asyncio.create_task(self.database.connect())
            self._connecting.add_done_callback(self._connected)
        return self.database.connected

    def _connected(self, connecting: asyncio.Task[None]) -> None:
        self._connecting = None
        if not connecting.cancelled() and connecting.exception() is not None:
            self.rest()

    def rest(self) -> None:
        """Something went wrong: no turn for a while."""
        self._not_before = monotonic() + REST

    def take(self, turn: Coroutine[Any, Any, None], ended: Callable[[], None]) -> None:
        """Take a turn; `ended` is called after it, however it ended."""
        self._turn = asyncio.create_task(turn)

        def done(task: asyncio.Task[None]) -> None:
            if self._turn is task and not task.cancelled() and task.exception() is None:
                self._turn = None
            ended()

        self._turn.add_done_callback(done)

    async def alone(self) -> None:
        """Wait until no turn is under way here. Raises what one failed with."""
        if self._connecting is not None:
            self._connecting.cancel()
        while (turn := self._turn) is not None:
            try:
                await asyncio.wait({turn})
            except asyncio.CancelledError:
                await self.give_up()
                raise
            if self._turn is turn:
                self._turn = None
                turn.result()

    async def give_up(self) -> None:
        """Let go of a turn that nobody waits for any longer: what it carried is in doubt then."""
        if self._connecting is not None:
            self._connecting.cancel()
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.cancel()
            await asyncio.wait({turn}, timeout=LAST_ANSWER)
