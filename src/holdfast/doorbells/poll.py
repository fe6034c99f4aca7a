"""No doorbell: workers poll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class PollListener:
    """Receives no hints."""

    live = False
    address = None

    async def listen(self, on_hints: Callable[[frozenset[str]], None]) -> None:
        await asyncio.Event().wait()
