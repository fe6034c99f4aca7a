"""A pool of connections, for clients that several threads use. A worker has none, and does not import this module."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from psycopg_pool import ConnectionPool

from holdfast.drivers.psycopg import OwnConnection


class _LastReturnedFirst(deque[OwnConnection]):
    """The idle connections of a pool, as a stack."""

    popleft = deque.pop


class OwnPool(ConnectionPool[OwnConnection]):
    """A pool that hands out the most recently returned connection, whose server process has warm caches.

    Only the process that opened it can close it. In a fork of that process, closing does nothing.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._opened_by = os.getpid()
        super().__init__(*args, **kwargs)
        self._pool = _LastReturnedFirst(self._pool)

    def close(self, timeout: float = 5.0) -> None:
        if self._opened_by == os.getpid():
            super().close(timeout)

    def __del__(self) -> None:
        if self._opened_by == os.getpid():
            super().__del__()
