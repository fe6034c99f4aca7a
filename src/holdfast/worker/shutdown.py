"""Stopping: signals, and the time that runs are given to end.

The first signal asks to stop, the second to hurry. A handler only says so; nothing depends on its running: a worker
that is killed in the midst of it all loses no run.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic

from holdfast.worker.exchange import Exchange


async def drain(exchange: Exchange, grace: float, hurry: asyncio.Event) -> None:
    """Claim nothing more, hand back what has not begun, and let the rest end within the grace."""
    exchange.claiming = False
    exchange.hand_back_waiting()
    deadline = monotonic() + grace
    timer = asyncio.get_running_loop().call_later(grace, exchange.wake)

    def enough() -> bool:
        done = not exchange.session.held and not exchange.pending
        return done or exchange.session.over or hurry.is_set() or monotonic() >= deadline

    try:
        with contextlib.suppress(TimeoutError):
            # A database that does not answer must not hold the worker either.
            async with asyncio.timeout(grace + 1):
                await exchange.serve(enough)
    finally:
        timer.cancel()
