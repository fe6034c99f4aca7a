"""A clock for tests: in a test database, `holdfast.now()` adds an offset that tests change.

Real time passes as well, so later events have later times. The function in production is `PRODUCTION`: it reads no
table and no setting, because any role could change those to forge the age of a lease.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

PRODUCTION = """
create function holdfast.now() returns timestamptz
    language sql stable parallel safe
    return statement_timestamp();
"""

_INSTALL = """
create schema if not exists holdfast_testing;
create table if not exists holdfast_testing.clock (ahead interval not null);
insert into holdfast_testing.clock select interval '0' where not exists (select from holdfast_testing.clock);
create or replace function holdfast.now() returns timestamptz
    language sql stable parallel safe
    return statement_timestamp() + (select ahead from holdfast_testing.clock);
"""


class Executes(Protocol):
    """The part of a connection that the clock needs."""

    def execute(self, query: Any, params: Any = None, /) -> Any: ...


def install(connection: Executes) -> None:
    """Replace the clock of a test database by one that can be moved."""
    for statement in _INSTALL.strip().split(";\n"):
        connection.execute(statement)


def move(connection: Executes, by: timedelta) -> None:
    """Let time pass, for every session at once."""
    connection.execute("update holdfast_testing.clock set ahead = ahead + %(by)s::interval", {"by": by})


def reset(connection: Executes) -> None:
    """Return to the real time."""
    connection.execute("update holdfast_testing.clock set ahead = interval '0'")
