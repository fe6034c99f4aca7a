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

# Installing it twice changes nothing, so that a change of the schema shows that a test has changed something else.
_INSTALL = """
do $install$
begin
    if to_regclass('holdfast_testing.clock') is null then
        create schema holdfast_testing;
        create table holdfast_testing.clock (ahead interval not null);
        insert into holdfast_testing.clock values (interval '0');
        create or replace function holdfast.now() returns timestamptz
            language sql stable parallel safe
            return statement_timestamp() + (select ahead from holdfast_testing.clock);
    end if;
end
$install$
"""


class Executes(Protocol):
    """The part of a connection that the clock needs."""

    def execute(self, query: Any, params: Any = None, /) -> Any: ...


def install(connection: Executes) -> None:
    """Replace the clock of a test database by one that can be moved."""
    connection.execute(_INSTALL)


def move(connection: Executes, by: timedelta) -> None:
    """Let time pass, for every session at once."""
    connection.execute("update holdfast_testing.clock set ahead = ahead + %(by)s::interval", {"by": by})


def reset(connection: Executes) -> None:
    """Return to the real time."""
    connection.execute("update holdfast_testing.clock set ahead = interval '0'")
