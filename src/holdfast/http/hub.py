"""The hub: all requests of this process that wait for a run or a job to change wait here.

One thread checks for all of them with one statement, several times a second, and at once after a notification, so the
load on Postgres does not grow with the number of waiting requests. Notifications and wake-ups are only hints: a request
that is woken reads the current state from the tables.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from time import monotonic
from typing import Any

import psycopg

from holdfast.domain.errors import HoldfastError
from holdfast.http.database import Database
from holdfast.observe import emit
from holdfast.sql import runs

# Seconds between two checks, and how much longer for each watch.
INTERVAL = 0.1
INTERVAL_PER_WATCH = 0.0005
PAUSE_FACTOR = 4
RECONNECT = 5.0


class Watch:
    """One request's wait for a run or job."""

    def __init__(self, watched: str) -> None:
        self.watched = watched
        self.version: str | None = None
        self.changed = threading.Event()
        self.abandoned = False

    def wait(self, timeout: float) -> bool:
        """Return True once the run may have changed since the last call, False after the timeout."""
        if not self.changed.wait(timeout):
            return False
        self.changed.clear()
        return True

    def abandon(self) -> None:
        """End the wait: its client has disconnected."""
        self.abandoned = True
        self.changed.set()


class Hub:
    """Wakes the watches of runs and jobs that changed."""

    def __init__(self, database: Database, *, listen: bool) -> None:
        self._database = database
        self._listen = listen
        self._watches: set[Watch] = set()
        self._arrived = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    @contextmanager
    def watch(self, watched: str) -> Iterator[Watch]:
        watch = Watch(watched)
        with self._arrived:
            self._watches.add(watch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="holdfast-hub", daemon=True)
                self._thread.start()
            self._arrived.notify()
        try:
            yield watch
        finally:
            with self._arrived:
                self._watches.discard(watch)

    def wake(self, watched: str) -> None:
        """Wake the watches of a run or job that a request to this process has changed."""
        with self._arrived:
            for watch in self._watches:
                if watch.watched == watched:
                    watch.changed.set()

    def wake_all(self) -> None:
        with self._arrived:
            for watch in self._watches:
                watch.changed.set()

    def close(self) -> None:
        with self._arrived:
            self._closing = True
            self._arrived.notify()
            thread = self._thread
        self.wake_all()
        if thread is not None:
            thread.join()

    def _serve(self) -> None:
        listener = Listener(self._database) if self._listen else None
        while self._wait_for_watches(listener):
            began = monotonic()
            self._check()
            # However often it is woken, this thread pauses several times as long as a check takes.
            self._pause(PAUSE_FACTOR * (monotonic() - began))
            next_at = began + INTERVAL + INTERVAL_PER_WATCH * len(self._watches)
            if listener is None or not listener.wait(next_at - monotonic()):
                self._pause(next_at - monotonic())
        if listener is not None:
            listener.close()

    def _wait_for_watches(self, listener: Listener | None) -> bool:
        with self._arrived:
            while not self._watches and not self._closing:
                if listener is not None:
                    listener.close()
                self._arrived.wait()
            return not self._closing

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with self._arrived:
                self._arrived.wait_for(lambda: self._closing, seconds)

    def _check(self) -> None:
        with self._arrived:
            watches = list(self._watches)
        ids = sorted({watch.watched for watch in watches})
        try:
            versions = self._database.perform(lambda: iter(runs.versions(ids)))
        except (HoldfastError, psycopg.Error):
            return  # each watch times out on its own, and the next check may succeed
        for watch in watches:
            version = versions.get(watch.watched, "gone")
            if version != watch.version:
                watch.version = version
                watch.changed.set()


class Listener:
    """A connection that receives notifications. Without it, the hub checks only at its regular interval."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: psycopg.Connection[Any] | None = None
        self._polls_until = 0.0

    def wait(self, seconds: float) -> bool:
        """Wait for a notification; False if none arrived in time, or if there is no connection to receive it."""
        if seconds <= 0 or (self._connection is None and monotonic() < self._polls_until):
            return False
        try:
            if self._connection is None:
                connection = self._connection = self._database.connect()
                if connection.pooled:
                    emit(
                        "listener.blocked",
                        error="a pooler in transaction mode does not forward notifications; polling instead",
                    )
                    self._polls_until = inf
                    self.close()
                    return False
                connection.execute("listen holdfast")
            return any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error:
            self._polls_until = monotonic() + RECONNECT
            self.close()
            return False

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
