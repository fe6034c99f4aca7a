"""The run's own transaction: what it writes commits together with the run's success, or not at all.

It lives in the process in which the task runs, on a connection that is opened when it is first asked for and closed
with the run. The success is settled on that same connection, behind the same fence as any other ending.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from holdfast import ops
from holdfast.domain.states import Status
from holdfast.domain.values import Settlement
from holdfast.drivers import psycopg as driver
from holdfast.drivers import sessions
from holdfast.drivers.sessions import OwnConnection


class RunTransaction:
    """One transaction of one run."""

    def __init__(self, connection: OwnConnection, worker_id: str) -> None:
        self.connection = connection
        self._worker_id = worker_id

    def block(self) -> AbstractContextManager[Any]:
        return self.connection.transaction()

    def commit(self, settlement: Settlement) -> bool:
        """Settle and commit. If it raises, it is not known whether that happened: the next attempt finds out."""
        try:
            # Until here the task chose how its statements run; what settles the run relies on nothing that it chose.
            self.connection.session = sessions.RUN
            self.connection.execute(sessions.RUN.local(self.connection.info.server_version), prepare=False)
            verdict = driver.run(self.connection, ops.finish(self._worker_id, [settlement]))[0]
            if verdict.accepted and verdict.outcome == Status.SUCCEEDED:
                self.connection.commit()
                return True
            return False
        finally:
            self.rollback()

    def rollback(self) -> None:
        """End the connection, and with it whatever has not been committed."""
        self.connection.close()


def open_transaction(url: str, worker_id: str) -> RunTransaction:
    """Connect and begin."""
    return RunTransaction(OwnConnection.begin_for_task(url), worker_id)
