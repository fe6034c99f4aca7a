"""LISTEN: a worker receives hints over a separate connection.

The listener reconnects forever. A half-open connection, or a pooler that accepts LISTEN without forwarding
notifications, looks the same as no hints. So the listener sends itself a notification when it connects, and queries the
server after a while without notifications. While it is not sure that hints arrive, `live` is False and the worker polls
more often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import uniform
from secrets import token_hex
from typing import Any

import psycopg

from holdfast.domain.doorbell import HANDED, LISTENING, Address
from holdfast.domain.ids import new_id
from holdfast.observe import emit

CHANNEL = "holdfast"
TEST = "test:"
TEST_WITHIN = 2.0
CHECK_EVERY = 60.0
ANSWER_WITHIN = 5.0
PAUSES = (0.1, 5.0)
BLOCKED_PAUSE = 60.0


class NotificationsBlocked(Exception):
    """The connection works, but notifications do not arrive."""


class NotifyListener:
    """Receives hints sent with `pg_notify('holdfast', hint)`."""

    def __init__(self, connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any] | None]]) -> None:
        """`connect` returns None if all connections go through a pooler, which does not forward notifications."""
        self._connect = connect
        self._reported_blocked = False
        self.live = False
        self.address: Address | None = None

    async def listen(self, on_hints: Callable[[frozenset[str]], None]) -> None:
        pause = PAUSES[0]
        while True:
            try:
                await self._session(on_hints)
            except NotificationsBlocked as error:
                if not self._reported_blocked:
                    emit("listener.blocked", error=str(error))
                    self._reported_blocked = True
                pause = BLOCKED_PAUSE
            except (psycopg.Error, OSError, TimeoutError) as error:
                if self.live:
                    pause = PAUSES[0]
                    emit("listener.lost", error=str(error) or type(error).__name__)
            finally:
                self.live = False
                self.address = None
            await asyncio.sleep(pause * uniform(0.5, 1.0))
            pause = min(pause * 2, PAUSES[1])

    async def _session(self, on_hints: Callable[[frozenset[str]], None]) -> None:
        async with asyncio.timeout(ANSWER_WITHIN):
            connection = await self._connect()
        if connection is None:
            raise NotificationsBlocked("a pooler in transaction mode does not forward notifications; polling instead")
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                await connection.execute(f"listen {CHANNEL}")
                # Its name cannot be guessed: what arrives there was sent by a statement that read it from the database.
                own = f"{CHANNEL}_{token_hex(16)}"
                await connection.execute(f"listen {own}")
                # Statements that hand over runs look at this lock. The server releases it when the connection ends.
                await connection.execute("select pg_advisory_lock(%s, pg_backend_pid())", [LISTENING])
            await self._test(connection, on_hints)
            self.live = True
            self.address = Address(own, connection.info.backend_pid)
            self._reported_blocked = False
            on_hints(frozenset())
            while True:
                async for notify in connection.notifies(timeout=CHECK_EVERY):
                    if notify.channel == own:
                        on_hints(frozenset((HANDED + notify.payload,)))
                    elif not notify.payload.startswith((TEST, HANDED)):
                        on_hints(frozenset((notify.payload,)))
                async with asyncio.timeout(ANSWER_WITHIN):
                    await connection.execute("select 1")
        finally:
            await connection.close()

    async def _test(self, connection: psycopg.AsyncConnection[Any], on_hints: Callable[[frozenset[str]], None]) -> None:
        """Send a notification and wait for it to arrive."""
        sign = TEST + new_id()
        await connection.execute("select pg_notify(%s, %s)", [CHANNEL, sign])
        async for notify in connection.notifies(timeout=TEST_WITHIN):
            if notify.payload == sign:
                return
            if not notify.payload.startswith((TEST, HANDED)):
                on_hints(frozenset((notify.payload,)))
        raise NotificationsBlocked(
            "LISTEN succeeds but no notifications arrive, as behind a pooler in transaction mode; polling instead"
        )
