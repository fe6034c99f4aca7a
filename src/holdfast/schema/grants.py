"""Grants: the privileges that a role needs for a purpose, if it does not own the schema.

    reader   lists and reads runs, jobs, queues, workers and the data behind the metrics
    client   the same, and submits, cancels and retries; pauses queues, drains workers
    api      the same, and looks up tokens
    worker   the same as a client, and executes runs, publishes events and maintains the tables

The owner is the role that runs `holdfast db upgrade`. It creates tokens and subscriptions, and grants these privileges,
again after each upgrade, because an upgrade may add tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import psycopg

from holdfast.domain.errors import PrivilegeMissing

SCHEMA = "holdfast"

# Without the channels of waiting workers: a role that knows one could send that worker a claim.
_EVERYTHING = (
    "attempts",
    "deliveries",
    "dependencies",
    "discarded_results",
    "events",
    "idempotency_keys",
    "jobs",
    "late_starts",
    "leases",
    "logs",
    "maps",
    "migration",
    "outbox",
    "pruned_ranges",
    "publishing",
    "queues",
    "ready",
    "resources",
    "run_status",
    "runs",
    "runs_default",
    "steps",
    "summary",
    "tallies",
    "waiting",
    "workers",
)
# Without the secrets of webhooks, which only workers need.
_SUBSCRIPTION = "created_at, filter, id, kind, name, pause_reason, paused_at, since, target"

_READER: Mapping[str, str] = dict.fromkeys(_EVERYTHING, "select")

# Locking a row requires the privilege to update it, so some of these are needed only for locks.
_CLIENT: Mapping[str, str] = {
    "attempts": "insert, update",
    "dependencies": "insert, update",
    "events": "insert",
    "idempotency_keys": "insert, update, delete",
    "jobs": "insert, update",
    "leases": "update",
    "maps": "insert, update",
    "outbox": "insert",
    "queues": "insert, update",
    "ready": "insert, update, delete",
    "resources": "insert, update, delete",
    "runs": "insert, update",
    "steps": "insert",
    "tallies": "insert",
    "waiting": "insert, update, delete",
    "waiting_workers": "select, delete",
    "workers": "insert, update",
}

_WORKER: Mapping[str, str] = {
    **_CLIENT,
    "attempts_default": "select, delete",
    "deliveries": "insert, update, delete",
    "discarded_results": "insert, update, delete",
    "events_default": "select, delete",
    "late_starts": "insert, update, delete",
    "leases": "insert, update, delete",
    "logs": "insert",
    "logs_default": "select, delete",
    "outbox": "insert, delete",
    "publishing": "insert, update, delete",
    "runs_default": "delete",
    "steps": "insert, update",
    "steps_default": "select, delete",
    "subscriptions": "select, update",
    "summary": "insert, update",
    "tallies": "insert, update, delete",
    "waiting_workers": "select, insert, update, delete",
    "workers": "insert, update, delete",
}

# The owner's function drops the table that a range names, so only that function may write the name.
_RANGES = (("insert", "low, high"), ("update", "edges_to, swept_at"))

_WRITES: Mapping[str, Mapping[str, str]] = {
    "reader": {},
    "client": _CLIENT,
    "api": {**_CLIENT, "tokens": "select"},
    "worker": _WORKER,
}
_CREATE_RUN = (
    "create_run(uuid, text, text, uuid, smallint, text, text, text, text[], text, text, text, text, "
    "boolean, boolean, boolean)"
)
_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "client": (_CREATE_RUN,),
    "api": (_CREATE_RUN,),
    "worker": (_CREATE_RUN, "make_partitions(timestamptz)", "drop_partitions(timestamptz)", "sweep_pruned(integer)"),
}

PURPOSES = tuple(_WRITES)


class Grant(NamedTuple):
    """Privileges on one object: a schema, a table, columns of a table, or a function."""

    privileges: tuple[str, ...]
    kind: str
    name: str
    columns: str = ""

    def statement(self, role: str) -> str:
        columns = f" ({self.columns})" if self.columns else ""
        what = ", ".join(f"{privilege}{columns}" for privilege in self.privileges)
        kind = "table" if self.kind == "columns" else self.kind
        return f"grant {what} on {kind} {self.name} to {quoted(role)};"


def grants(purpose: str) -> Iterator[Grant]:
    """Yield the privileges that a role needs for this purpose."""
    yield Grant(("usage",), "schema", SCHEMA)
    yield Grant(("select",), "columns", f"{SCHEMA}.subscriptions", _SUBSCRIPTION)
    writes = _WRITES[purpose]
    for table in sorted({*_READER, *writes}):
        given = [name for names in (_READER.get(table), writes.get(table)) if names for name in names.split(", ")]
        yield Grant(tuple(dict.fromkeys(given)), "table", f"{SCHEMA}.{table}")
    if purpose == "api":
        yield Grant(("update",), "columns", f"{SCHEMA}.tokens", "last_used_at")
    if purpose == "worker":
        for privilege, columns in _RANGES:
            yield Grant((privilege,), "columns", f"{SCHEMA}.pruned_ranges", columns)
    for function in _FUNCTIONS.get(purpose, ()):
        yield Grant(("execute",), "function", f"{SCHEMA}.{function}")


def statements(purpose: str, role: str) -> list[str]:
    """Return the statements that grant a role the privileges for this purpose; the schema's owner runs them."""
    return [grant.statement(role) for grant in grants(purpose)]


def quoted(role: str) -> str:
    doubled = role.replace('"', '""')
    return f'"{doubled}"'


# Objects and columns that an older schema does not have yet are not reported. Without the usage of the schema, Postgres
# looks up no object in it, so only that privilege is reported.
_MISSING = """
select (number - 1)::integer, privilege
from unnest(%(kinds)s::text[], %(names)s::text[], %(columns)s::text[], %(privileges)s::text[])
     with ordinality as wanted (kind, name, columns, privilege, number)
where not coalesce(
    case when kind = 'schema' then has_schema_privilege(to_regnamespace(name), privilege)
         when not has_schema_privilege(to_regnamespace(%(schema)s), 'usage') then true
         when kind = 'table' then has_table_privilege(to_regclass(name), privilege)
         when kind = 'columns' then
             (select bool_and(has_column_privilege(attrelid, attnum, privilege)) from pg_attribute
              where attrelid = to_regclass(name) and attname = any(string_to_array(columns, ', ')))
         else has_function_privilege(to_regprocedure(name), privilege) end, true)
order by number
"""


def missing(connection: psycopg.Connection[Any], purpose: str) -> list[Grant]:
    """Return the privileges that the role of this connection lacks for a purpose. Sends one statement."""
    wanted = [(grant, privilege) for grant in grants(purpose) for privilege in grant.privileges]
    values = {
        "kinds": [grant.kind for grant, _ in wanted],
        "names": [grant.name for grant, _ in wanted],
        "columns": [grant.columns for grant, _ in wanted],
        "privileges": [privilege for _, privilege in wanted],
        "schema": SCHEMA,
    }
    lacking: dict[Grant, list[str]] = {}
    for index, privilege in connection.execute(_MISSING, values):
        lacking.setdefault(wanted[index][0], []).append(privilege)
    return [grant._replace(privileges=tuple(privileges)) for grant, privileges in lacking.items()]


def summary(lacking: Sequence[Grant]) -> str:
    """Return the first of these privileges in words, and how many more there are."""
    named = "; ".join(f"{', '.join(one.privileges)} on {one.name}" for one in lacking[:3])
    return f"{named} and {len(lacking) - 3} more" if len(lacking) > 3 else named


def require(connection: psycopg.Connection[Any], purpose: str) -> None:
    """Raise PrivilegeMissing unless the role of this connection has the privileges for a purpose."""
    lacking = missing(connection, purpose)
    if lacking:
        role = connection.info.user
        raise PrivilegeMissing(
            f"the role {role} lacks {summary(lacking)}, which the purpose {purpose} needs. As the schema's owner, run "
            f"the statements that this command prints: holdfast db grants {purpose} {role}"
        )


# Only the owner changes these tables; `db grants` gives no role the privilege.
_OWNED = ("tokens", "subscriptions")


def denied(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], error: psycopg.Error, purpose: str = "client"
) -> PrivilegeMissing:
    """Return the error to raise if Postgres denies the role of this connection something."""
    role, what = connection.info.user, " ".join(str(error).split())
    if what.endswith(_OWNED) and purpose != "api":
        remedy = "Only the schema's owner changes tokens and subscriptions: use the role that ran holdfast db upgrade"
    else:
        remedy = (
            "As the schema's owner, run the statements that this command prints for the role's purpose "
            f"({', '.join(PURPOSES)}): holdfast db grants {purpose} {role}"
        )
    return PrivilegeMissing(f"{what}: the role {role} lacks a privilege. {remedy}")
