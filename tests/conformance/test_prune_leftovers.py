"""Rows that pruned runs leave in other tables: they are removed in small steps, unless they are still needed."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import ConfigurationError, RunEnded, RunNotFound
from holdfast.domain.ids import series
from holdfast.domain.jobs import NewJob
from holdfast.domain.states import Status
from holdfast.domain.values import Dependency
from holdfast.drivers import psycopg as driver
from holdfast.ops.create import FIRST_TASKS
from holdfast.ops.prune import Pruned
from holdfast.sql import jobs
from tests.conformance.test_prune import RETENTION, ended, make_month, month, old_id
from tests.timeline import Timeline, new_run

__all__ = ["make_month", "month"]


def prune(timeline: Timeline, **options: int) -> Pruned:
    return timeline.perform(lambda: ops.prune(RETENTION, **options))


def rows(connection: psycopg.Connection, table: str) -> int:
    found = connection.execute(f"select count(*) from holdfast.{table}").fetchone()
    return int(found[0]) if found else 0


def old_job(timeline: Timeline, *, tasks: int = 2, finish: bool = True) -> str:
    """Create a job of that month in which each task depends on the previous one."""
    job = old_id()
    ids = series(job, FIRST_TASKS, tasks, first=True)
    first = [
        new_run({"n": n}, id=id_, job_id=job, queue="old", depends_on=(Dependency(ids[n - 1]),) if n else ())
        for n, id_ in enumerate(ids)
    ]
    timeline.perform(lambda: ops.create_job(NewJob(job, "job"), first))
    worker = timeline.worker("a")
    for id_ in ids if finish else ids[:1]:
        worker.succeeds(worker.claims(id_, "old"))
    return job


def test_locked_dependency_does_not_prevent_dropping_its_month(
    timeline: Timeline, connection: psycopg.Connection, month: str
) -> None:
    """Only tables are changed while other sessions have to wait."""
    old_job(timeline)
    with connection.transaction():
        connection.execute("select from holdfast.dependencies for update")
        assert prune(timeline).months == [month]
        assert rows(connection, "dependencies") == 1
    prune(timeline)
    assert [rows(connection, table) for table in ("dependencies", "jobs", "pruned_ranges")] == [0, 0, 0]


def test_leftover_rows_of_a_dropped_month_are_removed_in_bounded_steps(
    timeline: Timeline, connection: psycopg.Connection, month: str
) -> None:
    old_job(timeline, tasks=40)
    pruned = prune(timeline, limit=2)
    assert (pruned.months, pruned.more) == ([month], True)
    assert rows(connection, "dependencies") == 39 - 10 * 3
    while prune(timeline, limit=2).more:
        pass
    left = [rows(connection, table) for table in ("dependencies", "jobs", "pruned_ranges")]
    assert left == [0, 0, 0]
    assert connection.execute("select to_regclass('holdfast.attempts_2001_05')").fetchone() == (None,)


def test_later_run_with_an_id_of_a_dropped_month_keeps_its_edges(
    timeline: Timeline, connection: psycopg.Connection, month: str
) -> None:
    old_job(timeline)
    with connection.transaction():
        connection.execute("select from holdfast.dependencies for update")
        assert prune(timeline).months == [month]
    first = timeline.submit(queue="other")
    late = timeline.perform(lambda: ops.submit(new_run(id=old_id(), depends_on=(Dependency(first),)))).run.id
    prune(timeline)
    assert connection.execute("select run_id::text from holdfast.dependencies").fetchall() == [(late,)]
    worker = timeline.worker("a")
    worker.succeeds(worker.claims(first, "other"))
    worker.claims(late)


@pytest.mark.every_driver
def test_month_with_an_open_job_is_kept(timeline: Timeline, month: str) -> None:
    """Its creator may be about to add the join."""
    job = old_id()
    (task,) = series(job, FIRST_TASKS, 1, first=True)
    timeline.perform(lambda: ops.create_job(NewJob(job, "job"), [new_run(id=task, job_id=job, queue="old")]))
    timeline.ask(jobs.hold(job, timedelta(hours=1)))
    worker = timeline.worker("a")
    worker.succeeds(worker.claims(task, "old"))
    assert prune(timeline).months == []
    timeline.later(hours=2)
    timeline.perform(ops.end_held_jobs)
    assert prune(timeline).months == [month]


def test_month_of_a_dependency_of_a_waiting_run_is_kept(
    timeline: Timeline, connection: psycopg.Connection, month: str
) -> None:
    first, second = ended(timeline), timeline.submit(queue="other")
    waiting = timeline.submit(depends_on=(Dependency(first), Dependency(second)))
    assert prune(timeline).months == []
    timeline.cancel(waiting)
    assert prune(timeline).months == [month]


@pytest.mark.every_driver
def test_run_that_starts_waiting_while_its_dependency_is_dropped_does_not_stall(
    timeline: Timeline, connection: psycopg.Connection, month: str
) -> None:
    first, second = ended(timeline), timeline.submit(queue="other")
    waiting = timeline.submit(depends_on=(Dependency(first), Dependency(second)))
    # As if it had been submitted between the first check and the locks.
    connection.execute(
        "create or replace function holdfast.is_awaited(low uuid, high uuid) returns boolean language sql as "
        "'select false'"
    )
    assert prune(timeline).months == [month]
    assert timeline.perform(ops.heal_dependencies)[0] == 0
    worker = timeline.worker("a")
    worker.succeeds(worker.claims(second, "other"))
    worker.claims(waiting)


def test_run_outside_every_month_that_another_waits_for_is_kept(timeline: Timeline) -> None:
    first, second = ended(timeline), timeline.submit(queue="other")
    waiting = timeline.submit(depends_on=(Dependency(first), Dependency(second)))
    timeline.later(days=91)
    assert prune(timeline).strays == 0
    timeline.cancel(waiting)
    assert prune(timeline).strays == 1


@pytest.mark.every_driver
def test_run_outside_every_month_of_an_open_job_is_kept(timeline: Timeline, connection: psycopg.Connection) -> None:
    job = old_job(timeline, finish=False)
    timeline.later(days=91)
    assert prune(timeline).strays == 0
    timeline.cancel(series(job, FIRST_TASKS, 2, first=True)[1])
    assert prune(timeline).strays == 2
    assert [rows(connection, table) for table in ("dependencies", "jobs", "pruned_ranges")] == [0, 0, 0]


@pytest.mark.every_driver
def test_failed_run_is_retried_after_its_dependency_was_pruned(timeline: Timeline, month: str) -> None:
    dependent = timeline.submit(depends_on=(Dependency(ended(timeline)),))
    worker = timeline.worker("a")
    worker.fails(worker.claims(dependent), retryable=False)
    assert prune(timeline).months == [month]
    assert timeline.retry(dependent).status == Status.PENDING
    worker.succeeds(worker.claims(dependent))


def test_run_that_never_started_is_not_retried_after_its_dependency_was_pruned(timeline: Timeline, month: str) -> None:
    dependent = timeline.submit(depends_on=(Dependency(ended(timeline)),))
    timeline.cancel(dependent)
    assert prune(timeline).months == [month]
    with pytest.raises(RunEnded, match="never started, and a run that it depends on has been pruned"):
        timeline.retry(dependent)
    assert timeline.status(dependent) == "CANCELLED"


def test_new_run_cannot_depend_on_a_pruned_run(timeline: Timeline, month: str) -> None:
    run = ended(timeline)
    prune(timeline)
    with pytest.raises(RunNotFound, match="cannot depend on"):
        timeline.submit(depends_on=(Dependency(run),))


@pytest.mark.every_driver
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_prune_rejects_isolation_levels_other_than_read_committed(
    timeline: Timeline, connection: psycopg.Connection, month: str, isolation: str
) -> None:
    run = ended(timeline)
    connection.execute(f"set default_transaction_isolation = '{isolation}'")
    with pytest.raises(ConfigurationError, match=f"READ COMMITTED.*{isolation}"):
        driver.transact(connection, lambda: ops.prune(RETENTION))
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="READ COMMITTED"):
        connection.execute("select holdfast.drop_partitions(now())")
    assert timeline.status(run) == "SUCCEEDED"
