"""Drift: what the database has, held against what its migrations make.

The schema is described as sorted lines: columns of tables and views, constraints, indexes, triggers and functions.
`sql/schema.txt` holds the lines of a freshly migrated database (`make schema` writes it), and a test keeps it so.
Monthly partitions come and go and are left out.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import psycopg

from holdfast.drivers import sessions
from holdfast.drivers.sessions import OwnConnection

_MONTHLY = r"_[0-9]{4}_[0-9]{2}"

_LINES = {
    "column": """
        select relname || '.' || attname || ' ' || format_type(atttypid, atttypmod)
               || case when attnotnull then ' not null' else '' end
               || coalesce(' default ' || pg_get_expr(adbin, adrelid), '')
        from pg_class join pg_attribute on attrelid = pg_class.oid
        left join pg_attrdef on adrelid = attrelid and adnum = attnum
        where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'p', 'v') and attnum > 0 and not attisdropped
          and relname !~ %(monthly)s""",
    "constraint": """
        select relname || ' ' || conname || ' ' || pg_get_constraintdef(pg_constraint.oid)
        from pg_constraint join pg_class on pg_class.oid = conrelid
        where connamespace = 'holdfast'::regnamespace and contype in ('c', 'p', 'u', 'f', 'x')
          and relname !~ %(monthly)s""",
    "index": """
        select indexname || ' ' || indexdef from pg_indexes
        where schemaname = 'holdfast' and tablename !~ %(monthly)s""",
    "trigger": """
        select relname || ' ' || pg_get_triggerdef(pg_trigger.oid)
        from pg_trigger join pg_class on pg_class.oid = tgrelid
        where relnamespace = 'holdfast'::regnamespace and not tgisinternal and relname !~ %(monthly)s""",
    "function": """
        select proname || '(' || pg_get_function_identity_arguments(oid) || ') ' || provolatile::text
               || case when prosqlbody is not null then ' ' || pg_get_function_sqlbody(oid) else ' ' || md5(prosrc) end
        from pg_proc where pronamespace = 'holdfast'::regnamespace""",
}


def describe(connection: psycopg.Connection[Any]) -> list[str]:
    """The schema of this database, line by line, in words that do not depend on the server's version or its roles."""
    with connection.transaction():
        connection.execute("set local search_path to pg_catalog")
        return sorted(
            " ".join(f"{kind} {row[0]}".split())
            for kind, query in _LINES.items()
            for row in connection.execute(query, {"monthly": _MONTHLY})
        )


def expected() -> list[str]:
    """The schema that the migrations make."""
    return (resources.files("holdfast.sql") / "schema.txt").read_text("utf-8").splitlines()


def check(url: str) -> list[str]:
    """Each difference between the database and its migrations, in words; none if there is no drift."""
    with OwnConnection.connect(url, session=sessions.CLIENT) as connection:
        found, wanted = set(describe(connection)), set(expected())
    return [f"missing: {line}" for line in sorted(wanted - found)] + [
        f"not made by a migration: {line}" for line in sorted(found - wanted)
    ]
