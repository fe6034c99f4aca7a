"""Figures about the whole system: queues, workers and runs for metrics and health checks, and the state of the server.

Ages are measured by the database's clock.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.sql.ready import BY_TASK
from holdfast.sql.statement import Statement, each

# The tables that every claim and finish reads: dead rows in them slow down both.
HOT = ("ready", "waiting", "leases", "workers")


class QueueGauge(NamedTuple):
    """A queue and its runs; `lag` is how long its first ready run has waited, in seconds."""

    name: str
    ready: int
    waiting: int
    running: int
    lag: float


def queues() -> Statement[list[QueueGauge]]:
    return Statement(
        """
        with parts (queue, ready, waiting, running, lag) as (
            select queue, count(*), 0, 0, extract(epoch from holdfast.now() - holdfast.readable(min(rank_at)))
            from holdfast.ready group by queue
            union all
            select queue, 0, count(*), 0, 0 from holdfast.waiting group by queue
            union all
            select runs.queue, 0, 0, count(*), 0
            from holdfast.leases join holdfast.runs on runs.id = leases.run_id group by runs.queue
            union all
            select name, 0, 0, 0, 0 from holdfast.queues
            union all
            select 'default', 0, 0, 0, 0
        )
        select queue, sum(ready)::bigint, sum(waiting)::bigint, sum(running)::bigint, greatest(max(lag), 0)::float8
        from parts group by queue order by queue
        """,
        {},
        each(QueueGauge._make),
    )


class UnclaimableTask(NamedTuple):
    """Ready runs of a task that no live worker of their queue has registered; `lag` is the wait of the first."""

    queue: str
    task: str
    ready: int
    lag: float


def unclaimable() -> Statement[list[UnclaimableTask]]:
    """Return tasks whose ready runs no live worker can claim, except in queues that are paused or have no worker."""
    return Statement(
        BY_TASK
        + """
        select queued_task.queue, queued_task.task, found.amount, greatest(found.lag, 0)::float8
        from queued_task
        cross join lateral (
            select count(*) filter (where coalesce(queued_task.queue = any(workers.queues), true)) as serving,
                   count(*) filter (where coalesce(queued_task.queue = any(workers.queues), true)
                                    and coalesce(queued_task.task = any(workers.tasks), true)) as knowing
            from holdfast.workers
            where workers.expires_at > holdfast.now() and workers.drain_requested_at is null) as live
        cross join lateral (
            select count(*) as amount, extract(epoch from holdfast.now() - min(rank_at)) as lag
            from holdfast.ready where ready.queue = queued_task.queue and ready.task = queued_task.task) as found
        where live.serving > 0 and live.knowing = 0 and queued_task.task <> ''
          and not exists (select from holdfast.queues
                          where queues.name = queued_task.queue and queues.paused_at is not null)
        order by queued_task.queue, queued_task.task
        """,
        {},
        each(UnclaimableTask._make),
    )


class WorkerGauge(NamedTuple):
    """A live worker and the seconds since its last heartbeat."""

    id: str
    name: str
    age: float
    slots: int


def workers() -> Statement[list[WorkerGauge]]:
    return Statement(
        """
        select id::text, name, greatest(extract(epoch from holdfast.now() - heartbeat_at), 0)::float8, slots
        from holdfast.workers where expires_at > holdfast.now() order by id
        """,
        {},
        each(WorkerGauge._make),
    )


class Overview(NamedTuple):
    """The numbers of live workers, of ready runs, and of runs whose lease expired without a rescue."""

    workers_alive: int
    queue_depth: int
    stale_tasks: int


def overview(stale_after: float) -> Statement[Overview]:
    """Return the overview; a run is stale if its lease expired more than `stale_after` seconds ago."""
    return Statement(
        """
        select (select count(*) from holdfast.workers where expires_at > holdfast.now()),
               (select count(*) from holdfast.ready),
               (select count(*) from holdfast.leases
                where not exists (select from holdfast.workers
                                  where workers.id = leases.worker_id
                                    and workers.expires_at > holdfast.now() - %(stale_after)s * interval '1 second'))
        """,
        {"stale_after": stale_after},
        lambda found: Overview(*found[0]),
    )


def running() -> Statement[dict[str, int]]:
    """Return the number of running runs by task. This reads one row per lease, however long the backlog is."""
    return Statement(
        """
        select runs.task, count(*) from holdfast.leases join holdfast.runs on runs.id = leases.run_id
        group by runs.task
        """,
        {},
        lambda found: {row[0]: int(row[1]) for row in found},
    )


class Stuck(NamedTuple):
    """Numbers of runs that should have been rescued or queued, and the longest delays."""

    expired: int
    expired_seconds: float
    overdue: int
    overdue_seconds: float


def stuck() -> Statement[Stuck]:
    """Count leases whose worker is dead, and waiting runs that are due."""
    return Statement(
        """
        select lost.amount, coalesce(lost.seconds, 0)::float8, late.amount, coalesce(late.seconds, 0)::float8
        from (select count(*) as amount,
                     extract(epoch from holdfast.now()
                                        - holdfast.readable(min(coalesce(workers.expires_at, claimed_at)))) as seconds
              from holdfast.leases left join holdfast.workers on workers.id = leases.worker_id
              where coalesce(workers.expires_at <= holdfast.now(), true)) as lost,
             (select count(*) as amount, extract(epoch from holdfast.now() - holdfast.readable(min(due_at))) as seconds
              from holdfast.waiting where blockers = 0 and due_at <= holdfast.now()) as late
        """,
        {},
        lambda found: Stuck(*found[0]),
    )


class Server(NamedTuple):
    """Version, clock and settings of the server."""

    version: str
    version_number: int
    now: float
    fsync: bool
    synchronous_commit: str
    standby: bool
    connections: int
    max_connections: int


def server() -> Statement[Server]:
    return Statement(
        """
        select current_setting('server_version'), current_setting('server_version_num')::integer,
               extract(epoch from clock_timestamp())::float8, current_setting('fsync')::boolean,
               current_setting('synchronous_commit'), pg_is_in_recovery(),
               (select count(*) from pg_stat_activity where backend_type = 'client backend')::integer,
               current_setting('max_connections')::integer
        """,
        {},
        lambda found: Server(*found[0]),
    )


class Months(NamedTuple):
    """Missing partitions of this month and the next, and whether any run is in the default partition."""

    missing: list[str]
    strays: bool


def months(ahead: timedelta) -> Statement[Months]:
    return Statement(
        """
        select array(
                   select parent || suffix
                   from unnest(array['runs', 'attempts', 'events', 'logs', 'steps']) as parent,
                        (select distinct to_char(at at time zone 'UTC', '_YYYY_MM') as suffix
                         from unnest(array[holdfast.now(), holdfast.now() + %(ahead)s::interval]) as at) as months
                   where to_regclass(format('holdfast.%%I', parent || suffix)) is null
                   order by 1),
               exists (select from holdfast.runs_default)
        """,
        {"ahead": ahead},
        lambda found: Months(*found[0]),
    )


class Holder(NamedTuple):
    """A transaction or replication slot that keeps vacuum from removing dead rows."""

    what: str
    seconds: float


def vacuum_holders(older_than: timedelta) -> Statement[list[Holder]]:
    """Return transactions and prepared transactions older than this, and lagging replication slots, oldest first."""
    return Statement(
        """
        select what, seconds::float8 from (
            select format('process %%s (%%s, %%s)', pid, coalesce(nullif(application_name, ''), usename, backend_type),
                          coalesce(state, 'at work')) as what,
                   extract(epoch from clock_timestamp() - xact_start) as seconds
            from pg_stat_activity
            where (backend_xmin is not null or backend_xid is not null)
              and xact_start < clock_timestamp() - %(age)s::interval
              and pid <> pg_backend_pid() and backend_type <> 'autovacuum worker'
            union all
            select format('prepared transaction %%s', gid), extract(epoch from clock_timestamp() - prepared)
            from pg_prepared_xacts where prepared < clock_timestamp() - %(age)s::interval
            union all
            select format('replication slot %%s', slot_name), 0
            from pg_replication_slots where greatest(age(xmin), age(catalog_xmin)) > 10000000
        ) as holders order by seconds desc limit 10
        """,
        {"age": older_than},
        each(Holder._make),
    )


class Bloat(NamedTuple):
    """Live and dead rows of a hot table, as estimated by the server."""

    table: str
    live: int
    dead: int
    vacuumed_at: datetime | None


def bloat() -> Statement[list[Bloat]]:
    return Statement(
        """
        select relname, n_live_tup, n_dead_tup, greatest(last_vacuum, last_autovacuum) from pg_stat_user_tables
        where schemaname = 'holdfast' and relname = any(%(tables)s::text[]) order by n_dead_tup desc
        """,
        {"tables": "{" + ",".join(HOT) + "}"},
        each(Bloat._make),
    )
