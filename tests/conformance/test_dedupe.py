"""Dedupe: the same task and payload find an existing run, within a window, without a race."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import ConfigurationError
from holdfast.drivers.psycopg import run as drive
from holdfast.sql import payloads
from tests.conformance.drivers import Driver
from tests.timeline import Timeline, new_run


def test_dedupe_finds_a_pending_run(timeline: Timeline) -> None:
    run = timeline.submit({"n": 1}, dedupe="active")
    again = timeline.submitted({"n": 1}, dedupe="active")
    assert (again.run.id, again.created) == (run, False)


def test_a_run_submitted_with_dedupe_off_is_not_found(timeline: Timeline) -> None:
    timeline.submit({"n": 1})
    timeline.submit({"n": 1}, key="k")
    assert timeline.submitted({"n": 1}, dedupe="active").created
    assert timeline.submitted({"n": 2}, dedupe=timedelta(hours=1)).created


def test_a_run_with_a_key_is_found_unless_its_dedupe_is_off(timeline: Timeline) -> None:
    run = timeline.submit({"n": 1}, key="k", dedupe="active")
    assert timeline.submit({"n": 1}, key="another", dedupe="active") != run
    assert not timeline.submitted({"n": 1}, dedupe="active").created


def test_a_run_written_by_the_previous_release_is_found(timeline: Timeline, connection: psycopg.Connection) -> None:
    """That release does not write `deduplicates`."""
    run = new_run({"n": 1})
    connection.execute(
        """
        with made as (
            insert into holdfast.runs (id, created_at, payload_hash, task, queue, parameters)
            values (%s::uuid, holdfast.now(), decode(%s, 'hex'), %s, 'default', '{}') returning id, created_at
        )
        insert into holdfast.ready (run_id, rank_at, number, ord, queue, task)
        select id, created_at, 1, 0, 'default', %s from made
        """,
        [run.id, run.payload_hash, run.task, run.task],
    )
    assert timeline.submitted({"n": 1}, dedupe="active").run.id == run.id


def test_dedupe_finds_a_waiting_run(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timedelta(minutes=5), dedupe="active")
    assert timeline.submitted(dedupe="active").run.id == run


def test_dedupe_finds_a_running_run(timeline: Timeline) -> None:
    run = timeline.submit(dedupe="active")
    timeline.worker("a").claims(run)
    assert timeline.submitted(dedupe="active").run.id == run


def test_dedupe_does_not_find_a_run_with_a_cancel_request(timeline: Timeline) -> None:
    run = timeline.submit(dedupe="active")
    timeline.worker("a").claims(run)
    timeline.cancel(run)
    assert timeline.submitted(dedupe="active").created
    assert timeline.submitted(dedupe=timedelta(hours=1)).run.id != run


def test_dedupe_distinguishes_payloads_and_tasks(timeline: Timeline) -> None:
    timeline.submit({"n": 1}, dedupe="active")
    assert timeline.submitted({"n": 2}, dedupe="active").created
    assert timeline.submitted({"n": 1}, task="other", dedupe="active").created


def test_active_dedupe_does_not_find_an_ended_run(timeline: Timeline) -> None:
    run = timeline.submit(dedupe="active")
    worker = timeline.worker("a")
    worker.succeeds(worker.claims(run))
    assert timeline.submitted(dedupe="active").created


def test_active_dedupe_finds_no_run_older_than_its_window(timeline: Timeline) -> None:
    timeline.at("10:00")
    run = timeline.submit(dedupe="active")
    timeline.at("10:09")
    assert timeline.submitted(dedupe="active").run.id == run
    timeline.at("10:11")
    assert timeline.submitted(dedupe="active").created


@pytest.mark.every_driver
def test_dedupe_window_finds_a_succeeded_run(timeline: Timeline) -> None:
    run = timeline.submit(dedupe="active")
    worker = timeline.worker("a")
    worker.succeeds(worker.claims(run))
    timeline.later(minutes=50)
    assert timeline.submitted(dedupe=timedelta(hours=1)).run.id == run
    timeline.later(minutes=20)
    assert timeline.submitted(dedupe=timedelta(hours=1)).created


@pytest.mark.parametrize("ending", ["FAILED", "CANCELLED"])
def test_dedupe_window_does_not_find_a_failed_or_cancelled_run(timeline: Timeline, ending: str) -> None:
    run = timeline.submit(dedupe="active")
    if ending == "FAILED":
        worker = timeline.worker("a")
        worker.fails(worker.claims(run), retryable=False)
    else:
        timeline.cancel(run)
    assert timeline.status(run) == ending
    assert timeline.submitted(dedupe=timedelta(hours=1)).created


def test_dedupe_window_finds_a_reopened_run(timeline: Timeline) -> None:
    run = timeline.submit(dedupe="active")
    timeline.cancel(run)
    timeline.retry(run)
    assert timeline.submitted(dedupe=timedelta(hours=1)).run.id == run


@pytest.mark.every_driver
def test_dedupe_rejects_a_stricter_isolation_level(timeline: Timeline, connection: psycopg.Connection) -> None:
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(ConfigurationError, match="READ COMMITTED"), connection.transaction():
        drive(connection, ops.submit(new_run(dedupe="active")))


@pytest.mark.every_driver
def test_concurrent_request_waits_for_the_first_and_finds_its_run(
    timeline: Timeline, driver: Driver, connection: psycopg.Connection, database_url: str
) -> None:
    """The second of two transactions waits for the first to end, and then sees its run."""
    with driver.borrow() as run:
        first = run(ops.submit(new_run({"n": 1}, dedupe="active")))
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("set lock_timeout = '20ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable), other.transaction():
                drive(other, ops.submit(new_run({"n": 1}, dedupe="active")))
    assert timeline.submitted({"n": 1}, dedupe="active").run.id == first.run.id


@pytest.mark.fresh_database
def test_runs_older_than_the_window_are_not_read(connection: psycopg.Connection) -> None:
    """Many ended runs have this payload: only those within the window are read."""
    connection.execute(
        """
        insert into holdfast.runs (id, created_at, payload_hash, task, queue, parameters)
        select overlay(gen_random_uuid()::text placing left(holdfast.id_floor(at)::text, 13) from 1)::uuid, at,
               sha256('{}'), 'mock', 'default', '{}'
        from (select holdfast.now() - n * interval '1 minute' as at from generate_series(1, 5000) as n) as made
        """
    )
    connection.execute("analyze holdfast.runs")
    connection.execute("set enable_seqscan = off")
    for look in (payloads.active, payloads.recent):
        statement = look("mock", hashlib.sha256(b"{}").hexdigest(), timedelta(minutes=10))
        plan = connection.execute("explain (costs off) " + statement.sql, statement.params).fetchall()
        lines = [line for (line,) in plan]
        conditions = [line for line in lines if "Index Cond" in line and "payload_hash" in line]
        assert conditions
        assert all("created_at >" in line for line in conditions), lines
