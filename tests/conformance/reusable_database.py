"""A database that the tests of a module use one after the other, with sessions whose statements are already planned.

Connecting and planning take several times as long as what a test executes. Rows are deleted after each test. After a
test that failed, changed more than rows, or left a transaction open, the database and its sessions are not reused.
"""

from __future__ import annotations

from contextlib import ExitStack

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.conformance.drivers import DRIVERS, POOLED, Driver
from tests.databases import USES, Databases, with_database


class ReusableDatabase:
    """The database and the sessions of the current test, which the next test reuses if possible."""

    def __init__(self, databases: Databases, url: str | None = None) -> None:
        self._databases = databases
        self._stack = ExitStack()
        self._drivers: dict[str, Driver] = {}
        self._connections: dict[str, psycopg.Connection] = {}
        self._url = url
        self._since = 0
        self._uses = 0

    @property
    def url(self) -> str:
        if self._url is None:
            self._url = self._stack.enter_context(self._databases.lend())
            self._uses = 0
        return self._url

    def begin(self) -> None:
        self._since = self._databases.transaction()
        self._uses += 1

    def driver(self, name: str, pooler_url: str | None) -> Driver:
        if name not in self._drivers:
            url = self.url
            if name in POOLED and pooler_url is not None:
                url = with_database(pooler_url, str(conninfo_to_dict(url)["dbname"]))
            self._drivers[name] = self._stack.enter_context(DRIVERS[name](url))
        return self._drivers[name]

    @property
    def clock(self) -> psycopg.Connection:
        """The session that moves the clock."""
        return self._connection("clock")

    def end(self, *, passed: bool) -> None:
        """Delete the rows of a test, or discard everything."""
        if self._url is None:
            return
        if passed:
            assert [name for name, driver in self._drivers.items() if driver.in_transaction] == []
        try:
            if passed and self._uses < USES and self._databases.reuse(self._connection("cleanup"), self._since):
                return
        except psycopg.OperationalError:
            pass  # such as a lock that a session of the test still holds
        self.close()

    def close(self) -> None:
        self._stack.close()
        self._drivers.clear()
        self._connections.clear()
        self._url = None

    def _connection(self, purpose: str) -> psycopg.Connection:
        if purpose not in self._connections:
            options = "-c lock_timeout=5s" if purpose == "cleanup" else ""
            made = psycopg.connect(self.url, autocommit=True, options=options)
            self._connections[purpose] = self._stack.enter_context(made)
        return self._connections[purpose]
