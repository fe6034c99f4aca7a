"""Hints through Postgres, sent by a separate thread: no request waits for one, and many are combined into one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import psycopg

from holdfast.domain.values import RunRecord

PAUSE = 0.05


class Notifier:
    """A bell that collects hints and sends them at most every `PAUSE` seconds; the first is sent at once."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None
        self._hints: set[str] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def ring(self, hints: Iterable[str], runs: Iterable[RunRecord] = ()) -> None:
        with self._changed:
            waits = not self._hints
            self._hints.update(hints)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="holdfast-notify", daemon=True)
                self._thread.start()
            elif waits:
                self._changed.notify()

    ring_later = ring

    def may_send_inline(self, hint: str) -> bool:
        return False

    def suspend_inline(self) -> None:
        pass

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._hints or self._closing)
                hints, self._hints = self._hints, set()
                if not hints:
                    break
            self._notify(hints)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, PAUSE)
        self._disconnect()

    def _notify(self, hints: set[str]) -> None:
        """Send hints. One that cannot be sent is lost; then workers find the run at their next poll."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.execute(
                "select pg_notify('holdfast', hint) from unnest(%s::text[]) as hint", [list(hints)]
            )
        except psycopg.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
