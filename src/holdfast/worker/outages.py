"""Outages: what a worker does while the database does not respond."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.observe import emit
from holdfast.worker.database import said
from holdfast.worker.session import WorkerSession

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class Outage:
    """Counts the failures since the last response, and waits longer after each of them.

    After a failure the worker is `unsure` which of the results it sent were written, until it has asked.
    """

    def __init__(self, wake: asyncio.Event) -> None:
        self._wake = wake
        self.failures = 0
        self.unsure = False

    async def wait(self, error: BaseException, session: WorkerSession) -> None:
        """Wait before the next try, but not beyond the end of the session."""
        self.failures += 1
        self.unsure = True
        if self.failures == 1:
            emit("database.away", worker_id=session.id, error=said(error))
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.failures, 8))):
                while not session.over:
                    await self._wake.wait()
                    self._wake.clear()

    def end(self, worker_id: str) -> None:
        """Note that the database responded after failures."""
        emit("database.back", worker_id=worker_id, failures=self.failures)
        self.failures = 0
