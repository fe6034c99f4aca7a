"""The bell of a client with an RQ doorbell: a message for each new run, hints for Holdfast workers, and a sweeper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import psycopg

from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.doorbells.bell import Bell, CoalescingBell
from holdfast.doorbells.redis import RedisSend
from holdfast.doorbells.rq import Ring, RunRinger
from holdfast.runtime.rq_sweeper import Sweeper


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
