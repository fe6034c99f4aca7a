"""A clock to turn: in a test database, `holdfast.now()` reads an offset that tests move.

Time flows on its own as well, so whatever happens later is later. Production's function is `PRODUCTION`: it reads no
table and no setting, which any role could set to forge the age of a lease.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

PRODUCTION = """
create function holdfast.now() returns timestamptz
    language sql stable parallel safe
    return statement_timestamp();
"""

# Nothing is changed where it is installed: a test can tell by the schema whether another one changed it.
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
    """A connection, as far as the clock needs one."""

    def execute(self, query: Any, params: Any = None, /) -> Any: ...


def install(connection: Executes) -> None:
    """Make this database's clock one that can be turned. For databases that tests own."""
    connection.execute(_INSTALL)


def move(connection: Executes, by: timedelta) -> None:
    """Let time pass, for every session at once."""
    connection.execute("update holdfast_testing.clock set ahead = ahead + %(by)s::interval", {"by": by})


def reset(connection: Executes) -> None:
    """Back to the real time."""
    connection.execute("update holdfast_testing.clock set ahead = interval '0'")
