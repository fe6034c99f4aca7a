"""Renewal: the worker extends its lease, in a thread and over a connection of its own.

Nothing that runs in the worker can delay it, except code that does not release the interpreter. Renewals are sent at
fixed times of the monotonic clock, so a slow one does not delay the later ones; a failed one is repeated quickly. If no
renewal has been confirmed for the length of the lease less a margin, counted from when the last confirmed one was
*sent*, the worker fences itself: it stops its runs before another worker can start them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from time import monotonic

import psycopg

from holdfast import ops
from holdfast.domain.errors import LeaseLost
from holdfast.domain.values import Renewal
from holdfast.observe import emit
from holdfast.worker.database import Busy, Database, Unavailable, said
from holdfast.worker.options import WorkerOptions
from holdfast.worker.session import WorkerSession

STATEMENT_LIMIT = 5.0


class RenewalThread:
    """Renews one session until it is stopped or the session is lost; then calls `fence`, once, from its own thread."""

    def __init__(
        self,
        options: WorkerOptions,
        session: WorkerSession,
        *,
        registered: float,
        renewed: Callable[[Renewal], None],
        fence: Callable[[str], None],
    ) -> None:
        self._options = options
        self._session = session
        self._renewed = renewed
        self._fence = fence
        self._confirmed = registered
        self._retry = max(0.05, min(3.0, options.renew_every / 5))
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-renewal", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    async def stop(self) -> None:
        """Stop renewing."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended already
            self._loop.call_soon_threadsafe(self._stop_now)
        await asyncio.to_thread(self._thread.join, STATEMENT_LIMIT)

    def _stop_now(self) -> None:
        if self._stopping is not None:
            self._stopping.set()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._ready.set()
        ends = {asyncio.create_task(self._beat()), asyncio.create_task(self._guard())}
        stopped = asyncio.create_task(self._stopping.wait())
        done, _ = await asyncio.wait({*ends, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if stopped not in done:
            ended = next(one for one in ends if one in done)
            error = ended.exception()
            self._fence(ended.result() if error is None else f"renewal failed: {type(error).__name__}: {error}")
        for task in {*ends, stopped} - done:
            task.cancel()
        await asyncio.wait({*ends, stopped}, timeout=1)

    @property
    def _deadline(self) -> float:
        return self._confirmed + self._options.lease - self._options.margin

    async def _guard(self) -> str:
        while (left := self._deadline - monotonic()) > 0:  # noqa: ASYNC110 - time itself is what is waited for
            await asyncio.sleep(left)
        return (
            f"no renewal was confirmed for {monotonic() - self._confirmed:.1f} s of a {self._options.lease:g} s lease"
        )

    async def _beat(self) -> str:
        every = self._options.renew_every
        grid = self._confirmed + every
        database = Database(
            self._options.database_url, "renewal", time_limit=min(STATEMENT_LIMIT, every), pooler=self._options.pooler
        )
        try:
            while True:
                await asyncio.sleep(grid - monotonic())
                while grid <= monotonic():
                    grid += every
                try:
                    await self._renew(database)
                except LeaseLost as error:
                    return str(error)
                except (Unavailable, Busy, psycopg.Error) as error:
                    emit("renewal.failed", worker_id=self._session.id, error=said(error))
                    grid = min(grid, monotonic() + self._retry)
        finally:
            await database.close()

    async def _renew(self, database: Database) -> None:
        sent = monotonic()
        completed, failed = self._session.counts()
        try:
            renewal = await database.transact(lambda: ops.renew(self._session.id, completed, failed))
        except BaseException:
            self._session.completed += completed
            self._session.failed += failed
            raise
        self._confirmed = sent
        self._renewed(renewal)
