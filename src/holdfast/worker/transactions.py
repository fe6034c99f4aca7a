"""The run's own transaction: what it writes commits together with the run's success, or not at all.

It lives in the process in which the task runs, on a connection that is opened when first asked for and kept for the
runs to come. The success is settled on that same connection, behind the same fence as any other ending.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

import psycopg

from holdfast import ops
from holdfast.domain.states import Status
from holdfast.domain.values import Settlement
from holdfast.drivers import psycopg as driver

_kept = threading.local()


class RunTransaction:
    """One transaction of one run."""

    def __init__(self, connection: psycopg.Connection[Any], worker_id: str) -> None:
        self.connection = connection
        self._worker_id = worker_id
        connection.execute("begin")

    def block(self) -> AbstractContextManager[Any]:
        return self.connection.transaction()

    def commit(self, settlement: Settlement) -> bool:
        """Settle and commit. An error leaves it open whether that happened; the caller's next attempt finds out."""
        try:
            verdict = driver.run(self.connection, ops.finish(self._worker_id, [settlement]))[0]
            if verdict.accepted and verdict.outcome == Status.SUCCEEDED:
                self.connection.commit()
                return True
            self.connection.rollback()
        except BaseException:
            self.rollback()
            raise
        return False

    def rollback(self) -> None:
        try:
            self.connection.rollback()
        except psycopg.Error:
            self.connection.close()


def open_transaction(url: str, worker_id: str) -> RunTransaction:
    """Begin a transaction on this thread's connection."""
    connection: psycopg.Connection[Any] | None = getattr(_kept, "connection", None)
    if connection is None or connection.closed or connection.broken:
        connection = psycopg.connect(url, autocommit=True, application_name="holdfast run", connect_timeout=10)
        _kept.connection = connection
    try:
        return RunTransaction(connection, worker_id)
    except psycopg.OperationalError:
        # The server may have closed it while it lay here; one fresh connection decides.
        connection.close()
        _kept.connection = psycopg.connect(url, autocommit=True, application_name="holdfast run", connect_timeout=10)
        return RunTransaction(_kept.connection, worker_id)
