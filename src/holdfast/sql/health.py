"""Questions about the database itself: what a doctor asks, and nobody on the hot path."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.sql.statement import Row, Statement, each, first

# The tables that every claim and every finish goes through: dead rows there are paid for by each of them.
HOT = ("ready", "waiting", "leases", "workers")


class Server(NamedTuple):
    """What the server says about itself."""

    version: str
    version_number: int
    now: float
    fsync: bool
    synchronous_commit: str
    standby: bool
    connections: int
    max_connections: int


def server() -> Statement[Server | None]:
    return Statement(
        """
        select current_setting('server_version'), current_setting('server_version_num')::integer,
               extract(epoch from clock_timestamp())::float8, current_setting('fsync')::boolean,
               current_setting('synchronous_commit'), pg_is_in_recovery(),
               (select count(*) from pg_stat_activity where backend_type = 'client backend')::integer,
               current_setting('max_connections')::integer
        """,
        {},
        first(Server._make),
    )


class Months(NamedTuple):
    """The partitions: whether those of the coming month are there, and whether the stray one holds anything."""

    missing: list[str]
    strays: bool


def _months(row: Row) -> Months:
    return Months(list(row[0]), bool(row[1]))


def months(ahead: timedelta) -> Statement[Months | None]:
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
        first(_months),
    )


class Holder(NamedTuple):
    """Something that keeps vacuum from removing dead rows."""

    what: str
    seconds: float


def vacuum_holders(older_than: timedelta) -> Statement[list[Holder]]:
    """Transactions and prepared transactions older than this, and replication slots that lag; the oldest first."""
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
    """Rows of a hot table, by the server's estimate."""

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


class Service(NamedTuple):
    """A queue with ready runs, how long the first has been waiting, and how many live workers serve it."""

    queue: str
    ready: int
    oldest_seconds: float
    paused: bool
    workers: int


def service() -> Statement[list[Service]]:
    return Statement(
        """
        select ready.queue, ready.amount, extract(epoch from holdfast.now() - holdfast.readable(ready.oldest))::float8,
               exists (select from holdfast.queues where queues.name = ready.queue and queues.paused_at is not null),
               (select count(*) from holdfast.workers
                where workers.expires_at > holdfast.now() and workers.drain_requested_at is null
                  and coalesce(ready.queue = any(workers.queues), true))
        from (select queue, count(*) as amount, min(rank_at) as oldest from holdfast.ready group by queue) as ready
        order by ready.queue
        """,
        {},
        each(Service._make),
    )


class Stuck(NamedTuple):
    """Runs that should have moved on by themselves."""

    expired: int
    expired_seconds: float
    overdue: int
    overdue_seconds: float


def stuck() -> Statement[Stuck | None]:
    """Leases whose worker is gone, and waiting runs whose time has come; and since how long at most."""
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
        first(Stuck._make),
    )
