"""The run's own transaction: what it writes commits together with the run's success, or not at all.

It belongs to the process in which the task runs, and has a connection that is opened when the task first uses it and
closed with the run. The success is settled over the same connection, subject to the same fence as any other result.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import AbstractContextManager, suppress
from typing import Any

import psycopg

from holdfast import ops
from holdfast.domain.states import Status
from holdfast.domain.values import Settlement
from holdfast.drivers import psycopg as driver
from holdfast.drivers import sessions
from holdfast.drivers.psycopg import OwnConnection

COMMIT_WITHIN = 30.0


class RunTransaction:
    """One transaction of one run."""

    def __init__(self, connection: OwnConnection, worker_id: str, commit_within: float = COMMIT_WITHIN) -> None:
        self.connection = connection
        self._worker_id = worker_id
        self._commit_within = commit_within

    def block(self) -> AbstractContextManager[Any]:
        return self.connection.transaction()

    def commit(self, settlement: Settlement) -> bool:
        """Settle and commit. If this raises, the outcome is unknown, and the next attempt finds out.

        It ends within a time limit: each lock and each statement may take half of it, and a server that has not
        responded at its end is given up.
        """
        timer = threading.Timer(self._commit_within, self._cut)
        timer.daemon = True
        timer.start()
        try:
            # The task may have changed settings; the statements that settle the run must not rely on them.
            self.connection.session = sessions.RUN
            self.connection.execute(sessions.RUN.local(self.connection.info.server_version), prepare=False)
            half = round(self._commit_within * 500)
            self.connection.execute(f"set local lock_timeout = {half}; set local statement_timeout = {half}")
            ack = driver.run(self.connection, ops.finish(self._worker_id, [settlement]))[0]
            if ack.accepted and ack.outcome == Status.SUCCEEDED:
                self.connection.commit()
                return True
            return False
        finally:
            timer.cancel()
            self.rollback()

    def _cut(self) -> None:
        """Give up on a response by closing the socket; cancelling the statement would need a response."""
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.connection.fileno())) as one:
            one.shutdown(socket.SHUT_RDWR)

    def rollback(self) -> None:
        """Close the connection, and so roll back what has not been committed."""
        self.connection.close()


def open_transaction(url: str, worker_id: str) -> RunTransaction:
    """Connect and begin a transaction."""
    return RunTransaction(OwnConnection.begin_for_task(url), worker_id)
