"""A pool of connections, for clients that several threads use. A worker has none, and does not import this module."""

from __future__ import annotations

import os
from typing import Any

from psycopg_pool import ConnectionPool

from holdfast.drivers.psycopg import OwnConnection


class OwnPool(ConnectionPool[OwnConnection]):
    """A pool that only the process that opened it can close. In a fork of that process, closing does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._opened_by = os.getpid()
        super().__init__(*args, **kwargs)

    def close(self, timeout: float = 5.0) -> None:
        if self._opened_by == os.getpid():
            super().close(timeout)

    def __del__(self) -> None:
        if self._opened_by == os.getpid():
            super().__del__()
