"""Blocking calls in daemon threads, which do not keep a process alive that has to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T], name: str = "holdfast-call") -> T:
    """Await a blocking call in a daemon thread. If the wait is cancelled, it does not keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(done: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            done(value)

    def run() -> None:
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
            outcome: tuple[Callable[[Any], None], Any] = (future.set_exception, error)
        else:
            outcome = (future.set_result, value)
        try:
            loop.call_soon_threadsafe(settle, *outcome)
        except RuntimeError:  # the loop has ended
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future
