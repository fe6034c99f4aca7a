"""Grants: the privileges that a role needs for a purpose, if it does not own the schema.

    reader   lists and reads runs, jobs, queues, workers and the data behind the metrics
    client   the same, and submits, cancels and retries; pauses queues, drains workers
    api      the same, and looks up tokens
    worker   the same as a client, and executes runs, publishes events and maintains the tables

The owner is the role that runs `holdfast db upgrade`. It creates tokens and subscriptions, and grants these privileges,
again after each upgrade, because an upgrade may add tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import psycopg

SCHEMA = "holdfast"

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
    "workers": "insert, update, delete",
}

# The owner's function drops the table that a range names, so only that function writes its name.
_RANGES = (("insert", "low, high"), ("update", "edges_to, swept_at"))

_WRITES: Mapping[str, Mapping[str, str]] = {
    "reader": {},
    "client": _CLIENT,
    "api": {**_CLIENT, "tokens": "select"},
    "worker": _WORKER,
}
_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "worker": (
        "make_partitions(timestamptz)",
        "drop_partitions(timestamptz)",
        "sweep_pruned(integer)",
    )
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


# Objects that an older schema does not have yet are not reported.
_ASK: Mapping[str, str] = {
    "schema": "select has_schema_privilege(%(name)s, %(privilege)s)",
    "table": "select has_table_privilege(to_regclass(%(name)s), %(privilege)s)",
    "columns": "select bool_and(has_column_privilege(to_regclass(%(name)s), trim(one), %(privilege)s))"
    " from unnest(string_to_array(%(columns)s, ',')) as one",
    "function": "select has_function_privilege(to_regprocedure(%(name)s), %(privilege)s)",
}


def missing(connection: psycopg.Connection[Any], purpose: str) -> list[Grant]:
    """Return the privileges that the role of this connection lacks for a purpose."""
    found = []
    for grant in grants(purpose):
        lacking = tuple(one for one in grant.privileges if not _has(connection, grant, one))
        if lacking:
            found.append(grant._replace(privileges=lacking))
            if grant.kind == "schema":
                return found  # without it, no object in the schema can be checked
    return found


def _has(connection: psycopg.Connection[Any], grant: Grant, privilege: str) -> bool:
    values = {"name": grant.name, "privilege": privilege, "columns": grant.columns}
    row = connection.execute(_ASK[grant.kind], values).fetchone()
    return row is None or row[0] is not False
