"""Databases for tests, emptied after a test and given to the next one under another name.

Cloning and dropping a database makes the server write three checkpoints and copy 300 files; emptying one deletes a few
rows. A test gets the same either way: a database at the latest schema without rows, without connections, and
with a name that no process of an earlier test knows. A database whose schema, settings or statistics are no longer
those of the template is not emptied but dropped.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

# Deleted rows stay in the files until vacuum; plans must not depend on what many tests left there.
USES = 40
DISCONNECT_WITHIN = 30.0
# Deleting more rows than this takes longer than cloning.
MOST_BYTES = 2_000_000

# Anything but rows that a test changes adds, removes or updates a row of a catalog. Objects that come with the server
# have lower OIDs; no test changes them.
_OWN = 16384
_HERE = "datname = current_database()"
_CATALOGS = {
    "pg_attrdef": "true",
    "pg_attribute": f"attrelid >= {_OWN}",
    "pg_class": f"oid >= {_OWN}",
    "pg_constraint": f"oid >= {_OWN}",
    "pg_default_acl": "true",
    "pg_event_trigger": "true",
    "pg_extension": "true",
    "pg_index": f"indexrelid >= {_OWN}",
    "pg_largeobject_metadata": "true",
    "pg_namespace": "true",
    "pg_policy": "true",
    "pg_proc": f"oid >= {_OWN}",
    "pg_publication": "true",
    "pg_rewrite": f"oid >= {_OWN}",
    "pg_statistic": f"starelid >= {_OWN}",
    "pg_statistic_ext": "true",
    "pg_trigger": "true",
    "pg_type": f"oid >= {_OWN}",
    "pg_db_role_setting": f"setdatabase = (select oid from pg_database where {_HERE})",
    "holdfast.migration": "true",
}
_NEWER = "count(*) filter (where age(xmin) <= age(%(since)s::text::xid))"
_STATE = " union all ".join(
    [f"select '{name}', count(*), {_NEWER} from {name} where {which}" for name, which in _CATALOGS.items()]
    + [
        f"select 'analyzed', count(*), 0 from pg_class where oid >= {_OWN} and reltuples >= 0",
        f"select concat_ws(' ', datallowconn, datconnlimit, datacl, datdba), 1, 0 from pg_database where {_HERE}",
    ]
)

_WRITTEN = """
select coalesce(sum((pg_stat_file(pg_relation_filepath(oid))).size), 0) from pg_class
where relkind = 'r' and relnamespace = 'holdfast'::regnamespace
"""
_EMPTY = """
set session_replication_role = replica;
set synchronous_commit = off;
do $$
declare
    written regclass;
begin
    for written in
        select oid from pg_class
        where relkind = 'r' and relnamespace = 'holdfast'::regnamespace and relname <> 'migration'
            and (pg_stat_file(pg_relation_filepath(oid))).size > 0
    loop
        execute format('delete from %s', written);
    end loop;
    perform setval(seqrelid, seqstart, false)
    from pg_sequence join pg_class on oid = seqrelid where relnamespace = 'holdfast'::regnamespace;
    if to_regclass('holdfast_testing.clock') is not null then
        update holdfast_testing.clock set ahead = interval '0' where ahead <> interval '0';
    end if;
end
$$;
"""

State = list[tuple[Any, ...]]


def with_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def drop_database(connection: psycopg.Connection, name: str) -> None:
    connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


@dataclass(slots=True)
class _Emptied:
    name: str
    uses: int


class Databases:
    """The databases of one process, made from one template."""

    def __init__(self, connection: psycopg.Connection, server_url: str, template: str, prefix: str) -> None:
        self._connection = connection
        self._server_url = server_url
        self._template = template
        self._names = (f"{prefix}_{number}" for number in itertools.count(1))
        self._emptied: _Emptied | None = None
        self._as_cloned: State | None = None
        # Emptying reads the sizes of files and bypasses the triggers of tables.
        superuser = connection.execute("select usesuper from pg_user where usename = current_user").fetchone()
        self._may_empty = superuser == (True,)

    @contextmanager
    def lend(self, *, fresh: bool = False) -> Iterator[str]:
        """The URL of an empty database; with `fresh`, even the files of its tables are new."""
        name, uses = self._cloned() if fresh or self._emptied is None else self._renamed()
        since = self._transaction()
        try:
            yield with_database(self._server_url, name)
        finally:
            self._disconnect(name)
            if fresh or uses >= USES or self._emptied is not None or not self._empty(name, since):
                drop_database(self._connection, name)
            else:
                self._emptied = _Emptied(name, uses)

    def transaction(self) -> int:
        """The number of a transaction that begins now, for `reuse`."""
        return self._transaction()

    def reuse(self, connection: psycopg.Connection, since: int) -> bool:
        """Delete all rows of a database that stays lent, on a connection to it, unless they are many or more than rows
        was changed since that transaction. Return whether they were deleted."""
        if not self._may_empty or self._state(connection, since) != self._as_cloned:
            return False
        if connection.execute(_WRITTEN).fetchall()[0][0] > MOST_BYTES:
            return False
        connection.execute(_EMPTY)
        return True

    def clear(self, url: str) -> bool:
        """Delete all rows of a database that stays lent; return whether they could be deleted."""
        if self._may_empty:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(_EMPTY)
        return self._may_empty

    def close(self) -> None:
        if self._emptied is not None:
            drop_database(self._connection, self._emptied.name)
            self._emptied = None

    def _cloned(self) -> tuple[str, int]:
        name = next(self._names)
        # Copying files is several times as fast here as replaying them through the log.
        clone = sql.SQL("create database {} template {} strategy file_copy")
        self._connection.execute(clone.format(sql.Identifier(name), sql.Identifier(self._template)))
        if self._may_empty and self._as_cloned is None:
            with psycopg.connect(with_database(self._server_url, name), autocommit=True) as connection:
                self._as_cloned = self._state(connection, self._transaction())
        return name, 1

    def _renamed(self) -> tuple[str, int]:
        assert self._emptied is not None
        old, self._emptied = self._emptied, None
        name = next(self._names)
        self._disconnect(old.name)
        rename = sql.SQL("alter database {} rename to {}")
        self._connection.execute(rename.format(sql.Identifier(old.name), sql.Identifier(name)))
        return name, old.uses + 1

    def _empty(self, name: str, since: int) -> bool:
        """Delete all rows, unless they are many or the test has changed more than rows."""
        if not self._may_empty:
            return False
        try:
            with psycopg.connect(with_database(self._server_url, name), autocommit=True) as connection:
                return self.reuse(connection, since)
        except psycopg.OperationalError:  # a test may have disallowed connections to the database
            return False

    def _state(self, connection: psycopg.Connection, since: int) -> State:
        return connection.execute(_STATE, {"since": since}).fetchall()

    def _transaction(self) -> int:
        [number] = self._connection.execute("select pg_current_xact_id()::xid::text::bigint").fetchone() or ()
        return int(number)

    def _disconnect(self, name: str) -> None:
        """End all sessions of a database and wait for that: the server itself checks only every 100 ms."""
        ends_at = time.monotonic() + DISCONNECT_WITHIN
        end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
        while self._connection.execute(end, [name]).fetchall():
            if time.monotonic() > ends_at:
                raise TimeoutError(f"sessions in {name} do not end")
            time.sleep(0.001)
