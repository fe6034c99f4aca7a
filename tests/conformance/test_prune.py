"""Pruning: expired months are dropped; live runs, and runs with unexpired keys, are kept."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import RunNotFound
from holdfast.domain.ids import new_id
from holdfast.domain.jobs import NewJob
from holdfast.domain.states import Status
from holdfast.domain.values import Dependency
from holdfast.sql.keys import NewKey
from tests.timeline import Timeline, new_run

OLD = datetime(2001, 5, 20, tzinfo=UTC)
RETENTION = timedelta(days=90)


def old_id(at: datetime = OLD) -> str:
    """Return an id generated at that time."""
    stamp = f"{int(at.timestamp() * 1000):012x}"
    return f"{stamp[:8]}-{stamp[8:]}{new_id()[13:]}"


@pytest.fixture
def month(connection: psycopg.Connection) -> str:
    return make_month(connection)


def make_month(connection: psycopg.Connection) -> str:
    """Create the partitions of a month long ago."""
    found = connection.execute(
        "select holdfast.id_floor('2001-05-01 00:00+00'), holdfast.id_floor('2001-06-01 00:00+00')"
    ).fetchone()
    assert found is not None
    for table in ("runs", "attempts", "events", "logs", "steps"):
        span = f"for values from ('{found[0]}') to ('{found[1]}')"
        connection.execute(f"create table holdfast.{table}_2001_05 partition of holdfast.{table} {span}")
    return "2001_05"


def ended(timeline: Timeline, **options: object) -> str:
    run = timeline.submit(id=old_id(), queue="old", **options)
    worker = timeline.worker("a")
    worker.succeeds(worker.claims(run, "old"))
    return run


@pytest.mark.every_driver
def test_month_whose_runs_have_ended_is_dropped(timeline: Timeline, month: str) -> None:
    run = ended(timeline)
    kept = timeline.submit({"n": "new"})
    pruned = timeline.perform(lambda: ops.prune(RETENTION))
    assert pruned.months == [month]
    with pytest.raises(RunNotFound):
        timeline.get(run)
    assert timeline.status(kept) == "PENDING"


@pytest.mark.parametrize("place", ["ready", "waiting", "leases"])
def test_month_with_a_live_run_is_kept(timeline: Timeline, month: str, place: str) -> None:
    later = timedelta(hours=1) if place == "waiting" else None
    run = timeline.submit(id=old_id(), run_after=later)
    worker = timeline.worker("a")
    claim = worker.claims(run) if place == "leases" else None
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == []
    assert timeline.get(run).id == run
    timeline.cancel(run)
    if claim is not None:
        assert timeline.perform(lambda: ops.prune(RETENTION)).months == []
        worker.stops(claim)
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == [month]


def test_month_with_an_unexpired_key_is_kept(timeline: Timeline, month: str) -> None:
    run = ended(timeline, key="k", key_ttl=timedelta(hours=1))
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == []
    assert timeline.submitted(key="k", queue="old").run.id == run
    timeline.later(hours=2)
    pruned = timeline.perform(lambda: ops.prune(RETENTION))
    assert (pruned.keys, pruned.months) == (1, [month])


def test_key_is_removed_with_the_month_of_its_run(timeline: Timeline, month: str) -> None:
    run = ended(timeline, key="k", key_ttl=timedelta(hours=1))
    timeline.later(hours=2)
    age = timeline.now() - datetime(2001, 6, 1, tzinfo=UTC)
    pruned = timeline.perform(lambda: ops.prune(age + timedelta(days=1)))
    assert (pruned.keys, pruned.months) == (0, [])
    assert timeline.submitted(key="k", queue="old").run.id == run
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == [month]
    assert timeline.submitted(key="k").created


def test_key_of_a_job_is_removed_with_the_job(timeline: Timeline, month: str, connection: psycopg.Connection) -> None:
    job = NewJob(old_id(), "keyed")
    key = NewKey("", "k", job.id, "(job)", "00" * 32, timedelta(hours=1))
    timeline.perform(lambda: ops.create_keyed_job(job, [], key))
    timeline.perform(lambda: ops.stop_job(job.id, Status.CANCELLED, "enough"))
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == []
    timeline.later(hours=2)
    assert timeline.perform(lambda: ops.create_keyed_job(replace(job, id=old_id()), [], key)).id == job.id
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == [month]
    assert connection.execute("select count(*) from holdfast.jobs").fetchone() == (0,)
    assert connection.execute("select count(*) from holdfast.idempotency_keys").fetchone() == (0,)


def test_month_with_an_open_job_is_kept(timeline: Timeline, month: str) -> None:
    ended(timeline)
    job = NewJob(old_id(), "open")
    timeline.perform(lambda: ops.create_job(job, []))
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == []
    timeline.perform(lambda: ops.stop_job(job.id, Status.CANCELLED, "enough"))
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == [month]


def test_month_with_a_run_that_another_waits_for_is_kept(timeline: Timeline, month: str) -> None:
    run = ended(timeline)
    other = timeline.submit({"n": "other"})
    waiting = timeline.submit({"n": "waiting"}, depends_on=(Dependency(run, "always"), Dependency(other)))
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == []
    timeline.cancel(waiting)
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == [month]


def test_month_within_the_retention_is_kept(timeline: Timeline, month: str) -> None:
    ended(timeline)
    age = timeline.now() - datetime(2001, 6, 1, tzinfo=UTC)
    assert timeline.perform(lambda: ops.prune(age + timedelta(days=1))).months == []
    assert timeline.perform(lambda: ops.prune(age - timedelta(days=1))).months == [month]


def test_runs_outside_every_month_are_deleted_one_by_one(timeline: Timeline, connection: psycopg.Connection) -> None:
    """Ids from very wrong clocks are in the default partition."""
    live = timeline.submit(id=old_id(), queue="live")
    run = ended(timeline)
    timeline.cancel(timeline.submit({"n": 2}, id=old_id(), queue="cancelled"))
    assert timeline.perform(lambda: ops.prune(RETENTION)).strays == 0
    timeline.later(days=91)
    assert timeline.perform(lambda: ops.prune(RETENTION)).strays == 2
    with pytest.raises(RunNotFound):
        timeline.get(run)
    assert timeline.status(live) == "PENDING"
    left = connection.execute("select count(*) from holdfast.attempts_default").fetchone()
    assert left == (0,)


def test_run_outside_every_month_with_a_key_is_kept(timeline: Timeline) -> None:
    run = ended(timeline, key="k", key_ttl=timedelta(days=200))
    timeline.later(days=91)
    assert timeline.perform(lambda: ops.prune(RETENTION)).strays == 0
    assert timeline.status(run) == "SUCCEEDED"


def test_long_dead_workers_are_deleted(timeline: Timeline) -> None:
    timeline.worker("a")
    assert timeline.perform(lambda: ops.prune(RETENTION)).workers == 0
    timeline.later(days=91)
    timeline.worker("b")
    assert timeline.perform(lambda: ops.prune(RETENTION)).workers == 1


@pytest.mark.every_driver
def test_coming_months_are_created_in_advance(timeline: Timeline, connection: psycopg.Connection) -> None:
    assert timeline.perform(lambda: ops.make_partitions(timedelta(days=62))) == 0
    made = timeline.perform(lambda: ops.make_partitions(timedelta(days=250)))
    assert made % 5 == 0
    assert made >= 25
    assert timeline.perform(lambda: ops.make_partitions(timedelta(days=250))) == 0
    timeline.later(days=240)
    new = new_run(id=old_id(timeline.now()))
    timeline.perform(lambda: ops.submit(new))
    found = connection.execute("select relname from holdfast.runs join pg_class on pg_class.oid = runs.tableoid")
    assert found.fetchone() == (f"runs_{timeline.now():%Y_%m}",)


def test_month_created_too_late_does_not_prevent_others(timeline: Timeline, connection: psycopg.Connection) -> None:
    """A run submitted before its month was created stays in the default partition, and so does its month."""
    late = timeline.now() + timedelta(days=100)
    run = timeline.submit(id=old_id(late))
    assert timeline.perform(lambda: ops.make_partitions(timedelta(days=250))) >= 20
    assert timeline.perform(lambda: ops.make_partitions(timedelta(days=250))) == 0
    months = months_made(connection)
    assert f"runs_{late:%Y_%m}" not in months
    assert f"runs_{late + timedelta(days=62):%Y_%m}" in months
    worker = timeline.worker("a")
    worker.succeeds(worker.claims(run))
    assert timeline.status(run) == "SUCCEEDED"


def test_readers_and_writers_of_a_month_do_not_block_the_next(
    timeline: Timeline, connection: psycopg.Connection
) -> None:
    run = timeline.submit()
    with connection.transaction():
        connection.execute(f"select from holdfast.runs where id = '{run}'")
        connection.execute(f"delete from holdfast.logs where run_id = '{run}'")
        assert timeline.perform(lambda: ops.make_partitions(timedelta(days=250))) >= 25


def test_creating_months_waits_for_no_other_session(
    timeline: Timeline, connection: psycopg.Connection, month: str
) -> None:
    """A session reads for a long time: if another waited for it, all later sessions would wait too."""
    ended(timeline)
    with connection.transaction():
        connection.execute("select count(*) from holdfast.runs")
        assert timeline.perform(lambda: ops.prune(RETENTION)).months == []
        assert timeline.perform(lambda: ops.make_partitions(timedelta(days=250))) == 0
    assert timeline.perform(lambda: ops.prune(RETENTION)).months == [month]
    assert timeline.perform(lambda: ops.make_partitions(timedelta(days=250))) >= 25


def test_only_one_session_at_a_time_creates_months(timeline: Timeline, connection: psycopg.Connection) -> None:
    with connection.transaction(force_rollback=True):
        made = connection.execute("select holdfast.make_partitions(holdfast.now() + interval '250 days')").fetchone()
        assert timeline.perform(lambda: ops.make_partitions(timedelta(days=250))) == 0
    assert made == (timeline.perform(lambda: ops.make_partitions(timedelta(days=250))),)


def test_months_are_in_utc_regardless_of_the_database_time_zone(
    timeline: Timeline, connection: psycopg.Connection
) -> None:
    connection.execute("set timezone = 'America/New_York'")
    connection.execute("select holdfast.make_partitions(holdfast.now() + interval '400 days')")
    bounds = connection.execute(
        """select pg_get_expr(relpartbound, oid) from pg_class
           where relname ~ '^runs_2' and relkind = 'r' order by relname"""
    ).fetchall()
    spans = [re.findall(r"'([-0-9a-f]+)'", text) for (text,) in bounds]
    assert len(spans) >= 13
    assert [upto for _, upto in spans[:-1]] == [since for since, _ in spans[1:]]


def months_made(connection: psycopg.Connection) -> set[str]:
    found = connection.execute("select relname from pg_class where relname ~ '^runs_2' and relkind = 'r'")
    return {name for (name,) in found.fetchall()}
