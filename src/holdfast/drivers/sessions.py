"""Sessions: the settings that Holdfast's own connections apply, overriding those of role, database and server.

A role may have another isolation level, read-only transactions, another time zone or no lock timeout, and a server with
default settings compiles expensive plans. Our statements are written for one set of values, so a connection sets all of
them when it is opened, in one round trip. The settings of a caller's connection (`client.on`) are never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_FIXED: Mapping[str, str] = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    # Every name in our statements is qualified with its schema.
    "search_path": "pg_catalog, pg_temp",
    # Formats that psycopg can decode, and numbers with all their digits.
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    # Nulls in array parameters, and names quoted only where necessary, as the schema check expects them.
    "array_nulls": "on",
    "quote_all_identifiers": "off",
    # Short statements gain nothing from compiled plans. With the settings below, estimated costs are so high that a
    # server with default settings would compile every statement: draining runs took three to four times as long.
    "jit": "off",
    # Connections may stay idle in pools, or listen, without a limit.
    "idle_session_timeout": "0",
}

# While hot tables are small, the planner scans or sorts them completely, and a prepared statement keeps such a plan
# when they have grown: claiming 500 of 16,000 runs took 14 ms instead of 5. With these settings, only access by key is
# left. A custom plan compares each of 500 results with each lease, which takes ten times as long; generic plans are
# good from the first execution on, whether statements are prepared or not.
_BY_KEY: Mapping[str, str] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "plan_cache_mode": "force_generic_plan",
}


@dataclass(frozen=True)
class Session:
    """The settings of one use of the database. Times are in seconds.

    `read_timeout` is how long the connection waits for a response before it gives up; None leaves that to the caller.
    `by_key` restricts plans to those that read by key.
    """

    use: str
    lock_timeout: float = 2.0
    statement_timeout: float = 30.0
    idle_in_transaction: float = 30.0
    read_timeout: float | None = None
    by_key: bool = False
    synchronous: bool = True

    def settings(self, server_version: int) -> dict[str, str]:
        found = dict(_FIXED)
        found["lock_timeout"] = _milliseconds(self.lock_timeout)
        found["statement_timeout"] = _milliseconds(self.statement_timeout)
        found["idle_in_transaction_session_timeout"] = _milliseconds(self.idle_in_transaction)
        if server_version >= 170000:
            found["transaction_timeout"] = "0"
        if self.by_key:
            found.update(_BY_KEY)
        if not self.synchronous:
            found["synchronous_commit"] = "off"
        return found

    def local(self, server_version: int) -> bytes:
        """Return the statement that applies the settings to the current transaction."""
        settings = calls(self.settings(server_version), "true")
        return f"select {settings}".encode()

    def begin(self, server_version: int) -> bytes:
        """Return the statement that begins a transaction independent of the session's settings."""
        return b"begin isolation level read committed read write not deferrable; " + self.local(server_version)


CLIENT = Session("client", read_timeout=40.0)
# A caller of the API gets a response within about ten seconds, even if it is an error.
API = Session("api", lock_timeout=1.0, statement_timeout=6.0, read_timeout=7.0)
# A notification may be lost in a server crash: no connection is left that could receive it.
API_BELL = Session("api", statement_timeout=6.0, read_timeout=7.0, synchronous=False)
LISTENER = Session("listener", statement_timeout=5.0)
SWEEP = Session("sweep", statement_timeout=10.0, read_timeout=15.0)
MIGRATION = Session("migration", lock_timeout=2.0, statement_timeout=0, idle_in_transaction=0)
# A run's own transaction belongs to the task. Only the statements that settle the run are limited.
RUN = Session("run", lock_timeout=30.0, statement_timeout=60.0, read_timeout=70.0)


def worker(use: str, *, moving: bool, limit: float) -> Session:
    """A worker's connection. If `moving`, it never waits long for a lock, because its batches hold many runs."""
    return Session(use, 0.1 if moving else 2.0, statement_timeout=limit, idle_in_transaction=15.0, by_key=moving)


def calls(settings: Mapping[str, str], local: str) -> str:
    """Return the expressions that apply settings; where the SQL condition `local` is true, to one transaction only."""
    made = [f"pg_catalog.set_config('{name}', '{value}', {local})" for name, value in settings.items()]
    # In the role `replica`, a session fires no triggers: nothing would guard the transitions of runs, and no job would
    # start. Only some roles may change the setting, so it is changed only if necessary.
    replica = "pg_catalog.current_setting('session_replication_role') = 'replica'"
    made.append(f"case when {replica} then pg_catalog.set_config('session_replication_role', 'origin', {local}) end")
    return ", ".join(made)


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
