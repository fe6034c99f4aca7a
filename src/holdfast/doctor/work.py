"""Checks of runs, queues and workers, and of the tables that every run passes through."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from time import perf_counter

from holdfast.doctor.database import Target, drift
from holdfast.doctor.finding import Finding, fail, ok, warn
from holdfast.domain.tasks import registry
from holdfast.domain.times import written
from holdfast.drivers import psycopg as driver
from holdfast.drivers import sessions
from holdfast.drivers.psycopg import OwnConnection
from holdfast.sql import figures, ready
from holdfast.sql import queues as queues_sql
from holdfast.sql import workers as workers_sql

COMING = timedelta(days=31)
LONG_TRANSACTION = timedelta(minutes=5)
DEAD_ROWS = 20_000
# Rescue and promotion take seconds; a run that is later than this is stuck.
LATE_SECONDS = 60.0
SLOW_LOOK_SECONDS = 0.1
LOOKS = 3


def partitions(target: Target) -> Finding:
    found = target.query(figures.months(COMING))
    if found.missing:
        fix = "start a worker, whose upkeep creates them"
        return fail("partitions", f"missing for this or the next month: {', '.join(found.missing)}", fix)
    if found.strays:
        fix = "find the client whose clock is wrong; workers remove these runs after the retention period"
        return warn("partitions", "the default partition contains runs whose ids belong to no month", fix)
    return ok("partitions", "they exist for this month and the next, and contain every run")


def vacuum(target: Target) -> Finding:
    found = target.query(figures.vacuum_holders(LONG_TRANSACTION))
    if found:
        named = [f"{one.what} for {one.seconds / 60:.0f} min" if one.seconds else one.what for one in found[:3]]
        fix = "end it: select pg_terminate_backend(<process>)"
        return warn("vacuum", f"vacuum cannot remove dead rows because of {'; '.join(named)}", fix)
    return ok("vacuum", "no long transaction keeps vacuum from removing dead rows")


def dead_rows(target: Target) -> Finding:
    worst = [one for one in target.query(figures.bloat()) if one.dead > DEAD_ROWS and one.dead > one.live]
    if worst:
        detail = ", ".join(
            f"{one.table} has {one.dead} dead and {one.live} live rows, "
            f"last vacuumed {written(one.vacuumed_at) if one.vacuumed_at else 'never'}"
            for one in worst
        )
        fix = f"check that autovacuum runs, or run: vacuum holdfast.{worst[0].table}"
        return warn("dead rows", detail, fix)
    return ok("dead rows", "there are few in the tables that every run passes through")


def idle_look(target: Target) -> Finding:
    """How long the poll of an idle worker takes, on a session with a worker's settings."""
    session = sessions.worker("doctor", moving=True, limit=30.0)
    with OwnConnection.connect(target.url, session=session, pooler=target.settings.pooler) as connection:
        seconds = min(_timed(connection) for _ in range(LOOKS))
        row = connection.execute("select current_setting('jit')").fetchone()
    detail = f"the poll of an idle worker takes {seconds * 1000:.1f} ms"
    if seconds <= SLOW_LOOK_SECONDS:
        return ok("idle poll", detail)
    jit = " and jit is on: set jit = off" if row == ("on",) and not connection.pooled else ""
    fix = "look for a long transaction that blocks vacuum, or run: vacuum holdfast.ready, holdfast.waiting"
    return warn("idle poll", f"{detail}, which is slow{jit}", fix)


def _timed(connection: OwnConnection) -> float:
    began = perf_counter()
    driver.transact(connection, lambda: iter(ready.look(registry.names())))
    return perf_counter() - began


def workers(target: Target) -> Finding:
    found = [worker for worker in target.query(workers_sql.listing()) if worker.status != "stopped"]
    if not found:
        return warn("workers", "no worker is running, so no runs start", "start one: holdfast worker")
    away = target.query(workers_sql.away())
    if away:
        named = "; ".join(f"{one.name} ({one.executor}): {one.why}" for one in away)
        fix = "check HOLDFAST_RAY_ADDRESS, RAY_AUTH_MODE and the Ray head; until then, these workers claim no runs"
        return warn("workers", f"{len(away)} of {len(found)} cannot use their cluster: {named}", fix)
    busy, slots = sum(worker.running for worker in found), sum(worker.slots for worker in found)
    return ok("workers", f"{len(found)} alive, {busy} of {slots} slots busy")


def queues(target: Target) -> Finding:
    """Whether every ready run has a live worker that serves its queue and has registered its task."""
    now = target.server().now
    found = [one for one in target.query(queues_sql.listing()) if one.oldest_ready_at is not None]
    live = [one for one in target.query(workers_sql.listing()) if one.status in ("active", "idle")]
    served = {one.name for one in found for worker in live if worker.queues is None or one.name in worker.queues}
    unserved = {
        one.name: f"{one.name} ({one.ready} ready for {now - one.oldest_ready_at.timestamp():.0f} s)"
        for one in found
        if one.oldest_ready_at is not None and one.paused_at is None and one.name not in served
    }
    if unserved:
        fix = f"start one: holdfast worker --queues {next(iter(unserved))}"
        return fail("queues", f"no live worker serves {', '.join(unserved.values())}", fix)
    unknown = target.query(figures.unclaimable())
    if unknown:
        named = ", ".join(f"{one.task} in {one.queue} ({one.ready} ready for {one.lag:.0f} s)" for one in unknown)
        executors = {task.executor for one in unknown if (task := registry.find(one.task)) and task.executor}
        if executors:
            executor = min(executors)
            detail = f"no live worker has the executor {executor}, which waiting runs need: {named}"
            return fail("queues", detail, f"start one: holdfast worker --executor {executor}")
        fix = "start a worker with the module that registers it: --tasks"
        return fail("queues", f"no live worker has registered {named}", fix)
    paused = [one.name for one in found if one.paused_at is not None]
    if paused:
        fix = f"to start them: holdfast queues resume {paused[0]}"
        return warn("queues", f"runs are waiting in paused queues: {', '.join(paused)}", fix)
    return ok("queues", f"{sum(one.ready for one in found)} ready runs, and every queue is served")


def stuck(target: Target) -> Finding:
    found = target.query(figures.stuck())
    if found.expired and found.expired_seconds > LATE_SECONDS:
        detail = f"runs with an expired lease: {found.expired}, expired for up to {found.expired_seconds:.0f} s"
        return fail("stuck runs", detail, "start a worker: workers rescue such runs")
    if found.overdue and found.overdue_seconds > LATE_SECONDS:
        detail = f"runs that are due but not queued: {found.overdue}, overdue by up to {found.overdue_seconds:.0f} s"
        return fail("stuck runs", detail, "start a worker: workers queue due runs")
    return ok("stuck runs", "none")


Check = Callable[[Target], Finding]
CHECKS: tuple[Check, ...] = (drift, partitions, vacuum, dead_rows, idle_look, workers, queues, stuck)
