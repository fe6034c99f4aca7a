"""How Holdfast opens its own connections: their parameters, and the settings of their session.

Behind a pooler in transaction mode a connection has no session of its own: the next client of the server process would
inherit its settings, and its own next statement could run in another process. Such a connection is detected by
`pg_backend_pid()`, which differs from the process id that the pooler reported when it accepted the connection. Then
every transaction applies the settings itself (`begin`), no statement is prepared by name, and LISTEN is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from holdfast.domain.errors import ConfigurationError
from holdfast.drivers.sessions import Session, calls

ENCODING = "UTF8"

# A peer that disappears without closing the connection is noticed within about ten seconds.
KEEPALIVE: Mapping[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# Errors of the connection or the server, not of the caller.
REFUSED = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
# How many connections that the server has closed are taken from a pool before one is used unchecked.
STALE_CHECKS = 5

# A task may compute for any length of time between two statements.
BEGIN_FOR_TASK = (
    b"begin isolation level read committed read write not deferrable; "
    b"set local idle_in_transaction_session_timeout = 0; select pg_catalog.pg_backend_pid()"
)


def connection_arguments(session: Session, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a connection with this session; those that are given take precedence."""
    return {
        **KEEPALIVE,
        "autocommit": True,
        "fallback_application_name": f"holdfast {session.use}",
        "client_encoding": ENCODING,
        **given,
    }


def check_encoding(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Raise unless the encoding of the database can store all characters."""
    found = connection.info.parameter_status("server_encoding")
    if found is not None and found != ENCODING:
        raise ConfigurationError(
            f"the database {connection.info.dbname!r} uses the encoding {found}, which cannot store all characters; "
            f"Holdfast needs {ENCODING}. Create another: create database ... encoding '{ENCODING}' template template0"
        )


def setting_up(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], session: Session, pooler: str
) -> bytes:
    """One statement that returns the server's process id and applies the settings; behind a pooler, only to itself."""
    local = {
        "auto": f"pg_catalog.pg_backend_pid() <> {connection.info.backend_pid}",
        "off": "false",
    }.get(pooler, "true")
    settings = calls(session.settings(connection.info.server_version), local)
    return f"select pg_catalog.pg_backend_pid(), {settings}".encode()


def adopt(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    session: Session,
    pooler: str,
    row: tuple[Any, ...] | None,
) -> bytes | None:
    """Return the statement that begins transactions; None if the connection has its own session, now set up."""
    elsewhere = row is None or row[0] != connection.info.backend_pid
    if pooler == "off" or (pooler == "auto" and not elsewhere):
        return None
    if pooler != "prepared":
        connection.prepare_threshold = None
    return session.begin(connection.info.server_version)
