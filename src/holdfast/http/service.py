"""What one process of the API holds: its database, hub and streams. Opened on first use, and again after a fork."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import cached_property
from typing import Any

from holdfast.domain.errors import HoldfastError
from holdfast.http.database import Database
from holdfast.http.hosts import is_loopback
from holdfast.http.hub import Hub
from holdfast.http.metrics import Cluster, Meters
from holdfast.http.streams import Streams
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import Settings

EXTENSION = "holdfast"


class Service:
    """The state of the API in one process. It shares no socket with other processes: a forked process opens its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.streams = Streams(settings.max_streams)
        self.results_sent = Streams(settings.max_streams)
        self.meters = Meters(self)
        self.document: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._pid = 0

    @property
    def database(self) -> Database:
        if self._pid != os.getpid():
            self._open()
        return self._database

    @property
    def hub(self) -> Hub:
        if self._pid != os.getpid():
            self._open()
        return self._hub

    @property
    def cluster(self) -> Cluster:
        if self._pid != os.getpid():
            self._open()
        return self._cluster

    @cached_property
    def loopback(self) -> bool:
        """Whether the API can only be reached from this machine."""
        return is_loopback(self.settings.host)

    def _open(self) -> None:
        with self._lock:
            if self._pid == os.getpid():
                return
            runtime = Runtime(self.settings, check=False)
            self._database = Database(runtime, self.settings.api_connections)
            self._hub = Hub(self._database, listen=self.settings.doorbell != "poll")
            self._cluster = Cluster(self._database)
            self._pid = os.getpid()

    def stop_streams(self) -> None:
        """End streams and waits, so that the process can exit soon."""
        self.streams.closing = True
        if self._pid == os.getpid():
            self._hub.wake_all()

    def close(self) -> None:
        self.stop_streams()
        if self._pid == os.getpid():
            self._hub.close()
            with suppress(HoldfastError):
                self._database.close()
            self._pid = 0
