"""No doorbell: a worker looks by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class PollListener:
    """Never hears anything."""

    live = False

    async def listen(self, heard: Callable[[frozenset[str]], None]) -> None:
        await asyncio.Event().wait()
