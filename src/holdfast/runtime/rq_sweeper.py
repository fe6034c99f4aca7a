"""The RQ doorbell of a client: its bell, and the sweeper, which sends messages for ready runs whose message was lost.

Every process with an RQ doorbell has a sweeper: each client (including the API), each Holdfast worker, `holdfast
sweep`, and each RQ work-horse when its run has ended. A key in Redis ensures that only one of them sweeps, about once a
second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from random import random, uniform
from typing import Any, TypeVar

import psycopg

from holdfast import ops
from holdfast.domain.doorbell import Ring
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.doorbells.bell import Bell, CoalescingBell
from holdfast.doorbells.redis import RedisSend
from holdfast.doorbells.rq import ENOUGH_WAITING, RunRinger
from holdfast.drivers import psycopg as driver
from holdfast.sql.statement import Op

T = TypeVar("T")

SWEEP_EVERY = 1.0
PROMOTED_AT_ONCE = 1000
RESCUED_AT_ONCE = 100

log = logging.getLogger("holdfast.rq")


class Sweeper:
    """Sweeps on its own connection; `start` makes it sweep periodically."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], ringer: RunRinger) -> None:
        self._connect = connect
        self._ringer = ringer
        self._connection: psycopg.Connection[Any] | None = None
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def sweep(self) -> int:
        """If no other process has just swept, rescue, promote and ring. Return how many messages were sent."""
        if not self._ringer.may_sweep(SWEEP_EVERY * 0.9):
            return 0
        for orphan in self._transact(lambda: ops.find_orphans(RESCUED_AT_ONCE)):
            self._transact(lambda orphan=orphan: ops.rescue([orphan], random()))  # type: ignore[misc]
        self._transact(lambda: ops.promote(PROMOTED_AT_ONCE))
        ready = self._transact(lambda: ops.find_ready(ENOUGH_WAITING))
        return self._ringer.ring_again(ready)

    def _transact(self, make_op: Callable[[], Op[T]]) -> T:
        if self._connection is None:
            self._connection = self._connect()
        return driver.transact(self._connection, make_op)

    def try_sweep(self) -> int:
        """Sweep, ignoring database errors."""
        try:
            return self.sweep()
        except psycopg.Error as error:
            log.debug("sweep postponed: %s", error)
            self._disconnect()
            return 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="holdfast-sweep", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(SWEEP_EVERY * uniform(0.9, 1.1))
            self._wake.clear()
            if not self._closing:
                self.try_sweep()
        self._disconnect()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        else:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class RqBell(Bell):
    """Sends a message for each run. The next sweep resends messages that could not be sent."""

    def __init__(self, redis_url: str, connect: Callable[[], psycopg.Connection[Any]], again_after: float) -> None:
        self._ringer = RunRinger(redis_url, again_after)
        self._send = RedisSend(redis_url)
        self._hints = CoalescingBell(self._send)
        self._sweeper = Sweeper(connect, self._ringer)
        self._sweeper.start()

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        due = [run for run in runs if run.status is Status.PENDING and run.reason is None]
        self._ringer.ring([Ring(run.id, run.attempt_count + 1, run.queue) for run in due])
        self._hints.ring(hints)

    def ring_later(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        """Leave the messages to the next sweep: the caller has not committed, so the runs could not be claimed yet."""
        self._hints.ring_later(hints)

    def close(self) -> None:
        self._hints.close()
        self._sweeper.close()
        self._ringer.close()
        self._send.close()
