"""Classify database errors: invalid values, a conflict with another session, or a fault of the server.

Only invalid values can fail a run. Everything else (a failover, a read-only standby, a full disk, a missing
privilege) is retried and does not use up an attempt.
"""

from __future__ import annotations

from enum import Enum

import psycopg

from holdfast.domain.errors import HoldfastError


class Fault(Enum):
    """The cause of a database error."""

    DATA = "data"
    """The values cannot be stored. Sending them again gives the same error."""
    BUSY = "busy"
    """Another session holds a lock, or won a race. The same statement may succeed in a moment."""
    UNAVAILABLE = "unavailable"
    """The connection, or the server as a whole, failed. The statement is not at fault; a new connection may help."""
    REFUSED = "refused"
    """The server refused this statement for another reason: a privilege, a missing table, a broken row."""


# Data exceptions, and values that exceed a limit of the server.
_DATA_CLASSES = ("22", "54")
_BUSY_STATES = frozenset({"40001", "40P01", "55P03"})
# Connection, transaction state (a read-only standby among them), login, resources, operator, system, missing database;
# a prepared statement that a pooler or a migration has removed.
_UNAVAILABLE_CLASSES = ("08", "25", "26", "28", "3D", "53", "57", "58", "F0")
_UNAVAILABLE_STATES = frozenset({"0A000", "42P05"})


def fault_of(error: BaseException) -> Fault:
    """Classify an error by its SQLSTATE. An error without one concerns the connection, or a value that was sent."""
    if isinstance(error, HoldfastError):
        return Fault.DATA
    state = getattr(error, "sqlstate", None)
    if state is None:
        return Fault.DATA if isinstance(error, psycopg.DataError) else Fault.UNAVAILABLE
    if state in _BUSY_STATES:
        return Fault.BUSY
    if state[:2] in _DATA_CLASSES:
        return Fault.DATA
    gone = state[:2] in _UNAVAILABLE_CLASSES or state in _UNAVAILABLE_STATES
    return Fault.UNAVAILABLE if gone else Fault.REFUSED


READ_ONLY_STATE = "25006"
TAKES_NO_WRITES = "accepts no writes: it is a standby or read-only"


def is_read_only(error: BaseException) -> bool:
    """Whether the server rejected a write because it accepts none: it is a standby, or the transaction is read-only."""
    return getattr(error, "sqlstate", None) == READ_ONLY_STATE


# Faults of the whole server: connection exceptions, shutdown, crash, too many connections, out of memory.
_SERVER_STATES = ("08", "57P", "53")


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is lost, so that another may work: no server sent the error, or it ended the session."""
    return error.sqlstate is None or error.sqlstate.startswith(_SERVER_STATES)
