"""Checks of the database: version, schema, privileges, durability, clock, pooler and doorbell."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psycopg

from holdfast.doctor.finding import Finding, fail, ok, skip, warn
from holdfast.domain.errors import SchemaMismatch
from holdfast.drivers import psycopg as driver
from holdfast.drivers.psycopg import OwnConnection
from holdfast.runtime.runtime import connect
from holdfast.runtime.settings import Settings
from holdfast.schema import grants, migrate
from holdfast.sql import figures
from holdfast.sql.statement import Statement

T = TypeVar("T")

OLDEST_SERVER = 15
CLOCK_WARN, CLOCK_FAIL = 2.0, 3600.0
RING_SECONDS = 3.0


@dataclass
class Target:
    """The database to check."""

    settings: Settings
    url: str
    connection: OwnConnection
    purpose: str = "worker"

    def query(self, statement: Statement[T]) -> T:
        return driver.run(self.connection, iter(statement))

    def server(self) -> figures.Server:
        return self.query(figures.server())


def version(target: Target) -> Finding:
    found = target.server()
    if found.version_number // 10000 < OLDEST_SERVER:
        return fail("server", f"PostgreSQL {found.version} is too old", f"upgrade it to {OLDEST_SERVER} or newer")
    if found.standby:
        fix = "point HOLDFAST_DATABASE_URL at the primary"
        return fail("server", f"PostgreSQL {found.version} is a standby, which accepts no writes", fix)
    used = f"{found.connections} of {found.max_connections} connections in use"
    if found.connections > found.max_connections * 0.9:
        return warn("server", f"PostgreSQL {found.version}, {used}", "raise max_connections, or pool connections")
    return ok("server", f"PostgreSQL {found.version}, {used}")


def schema(target: Target) -> Finding:
    at, wanted = migrate.current(target.connection), migrate.latest()
    try:
        migrate.require(target.connection)
    except SchemaMismatch as mismatch:
        problem, _, fix = str(mismatch).partition("; ")
        return fail("schema", problem, fix)
    if at != wanted:
        return warn("schema", f"at {at}, one ahead of this release ({wanted})", "upgrade Holdfast on this machine")
    return ok("schema", f"at {at}, as this release expects")


def privileges(target: Target) -> Finding:
    """Whether the role has the privileges that its purpose needs."""
    row = target.connection.execute(
        "select current_user, count(*), coalesce(bool_or(pg_has_role(nspowner, 'usage')), false)"
        " from pg_namespace where nspname = 'holdfast'"
    ).fetchone()
    role, there, owns = row or ("", 0, False)
    if not there:
        return skip("privileges", "not checked, because there is no Holdfast schema yet")
    lacking = grants.missing(target.connection, target.purpose)
    if lacking:
        first = lacking[0].statement(role)
        fix = f"as the schema owner: {first} For all of them: holdfast db grants {target.purpose} {role}"
        named = grants.summary(lacking)
        return fail("privileges", f"the role {role} lacks {named}, which the purpose {target.purpose} needs", fix)
    return ok(
        "privileges", f"{role} {'owns the schema' if owns else f'has all privileges for the purpose {target.purpose}'}"
    )


def durability(target: Target) -> Finding:
    found = target.server()
    if not found.fsync:
        return fail("durability", "fsync is off: a power loss can destroy the database", "set fsync = on")
    if found.synchronous_commit == "off":
        fix = "set synchronous_commit = on, for the server or for this role"
        return fail("durability", "synchronous_commit is off: a crash can lose acknowledged runs", fix)
    return ok("durability", f"fsync is on, synchronous_commit is {found.synchronous_commit}")


def clock(target: Target) -> Finding:
    """The difference between this machine's clock and the database's. Leases use the latter, ids of runs the former."""
    before = time.time()
    found = target.server()
    apart = found.now - (before + time.time()) / 2
    detail = f"{abs(apart):.1f} s {'behind' if apart > 0 else 'ahead of'} the database"
    if abs(apart) > CLOCK_FAIL:
        return fail("clock", detail, "set this machine's clock: ids of new runs would belong to the wrong month")
    if abs(apart) > CLOCK_WARN:
        return warn("clock", detail, "synchronize this machine's clock (NTP)")
    return ok("clock", "agrees with the database's clock" if abs(apart) < 0.1 else detail)


def pooler(target: Target) -> Finding:
    """Whether the connection goes through a pooler, and whether HOLDFAST_POOLER agrees."""
    row = target.connection.execute("select pg_backend_pid()").fetchone()
    seen = row is None or row[0] != target.connection.info.backend_pid
    if seen and not target.connection.pooled:
        fix = "set HOLDFAST_POOLER=auto, unless the pooler is in session mode"
        return warn("pooler", "the connection goes through a pooler, but HOLDFAST_POOLER is off", fix)
    if target.connection.pooled:
        kept = "statements are prepared" if target.connection.prepare_threshold is not None else "nothing is prepared"
        found = "a pooler" if seen else "none detected, but HOLDFAST_POOLER says that there is one"
        return ok("pooler", f"{found}: each transaction applies its settings, {kept}, and workers poll")
    return ok("pooler", "none: each connection has its own session")


def doorbell(target: Target) -> Finding:
    """Whether a notification sent by this process arrives."""
    if target.settings.doorbell == "poll":
        return ok("doorbell", "poll: no hints are sent, workers poll")
    if target.connection.pooled:
        fix = "give workers a database URL that bypasses the pooler, or set HOLDFAST_DOORBELL=poll or redis"
        return warn("doorbell", "the pooler does not forward NOTIFY: runs start at the next poll", fix)
    with connect(target.url, target.settings.pooler) as listening:
        listening.execute("listen holdfast_doctor")
        try:
            target.connection.execute("select pg_notify('holdfast_doctor', '')")
        except psycopg.errors.ProgramLimitExceeded:
            fix = "end the session that listens inside an old transaction (pg_stat_activity.xact_start)"
            return warn("doorbell", "the server's notification queue is full: runs start at the next poll", fix)
        received = list(listening.notifies(timeout=RING_SECONDS, stop_after=1))
    if received:
        return ok("doorbell", f"{target.settings.doorbell}: a test NOTIFY arrived")
    fix = "connect without a transaction pooler, or set HOLDFAST_DOORBELL=poll"
    return warn("doorbell", f"a test NOTIFY did not arrive within {RING_SECONDS:g} s: runs start at the next poll", fix)


def drift(target: Target) -> Finding:
    from holdfast.schema.drift import check

    if migrate.current(target.connection) != migrate.latest():
        return skip("drift", "not compared, because the database is one schema ahead of this release")
    differences = check(target.url)
    if not differences:
        return ok("drift", "the schema matches its migrations")
    shown = "; ".join(differences[:3]) + ("; …" if len(differences) > 3 else "")
    return fail("drift", shown, "undo the change by hand; holdfast db check lists every difference")


CHECKS: tuple[Callable[[Target], Finding], ...] = (version, pooler, clock, durability, doorbell, privileges, schema)
