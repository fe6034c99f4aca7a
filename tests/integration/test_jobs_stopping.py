"""Jobs that are stopped: no more of their runs start, pending runs end, and a retry has to wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import JobEnded
from holdfast.domain.ids import derived_id
from holdfast.domain.settling import Failed, Succeeded, settle
from holdfast.domain.states import Status
from holdfast.drivers import psycopg as driver
from holdfast.sql import jobs, stopping
from holdfast.sql.jobs import Move
from tests.integration.jobs_support import ERROR, Stage, new_run, stage
from tests.integration.worker_support import eventually

__all__ = ["stage"]


def test_children_of_a_task_whose_job_is_being_stopped_never_start(stage: Stage) -> None:
    job_id = stage.job(new_run())
    (parent,) = stage.claim()
    stage.do(lambda: ops.stop_job(job_id, Status.CANCELLED, "enough"))
    child = replace(new_run(derived_id(parent.run_id, "child")), job_id=job_id)
    stage.finish([settle(parent, Succeeded("null"), 0.5)._replace(adds=(child,))])
    stage.stop_job(job_id)
    assert stage.claim() == []
    job = stage.get_job(job_id)
    assert (job.status, job.total, job.succeeded, job.cancelled) == (Status.CANCELLED, 2, 1, 1)


def test_a_stopped_job_starts_nothing_and_ends_cancelled(stage: Stage) -> None:
    a = new_run()
    job_id = stage.job(a, *(new_run() for _ in range(5)), new_run(on=[a.id]))
    running = stage.claim(2)
    assert stage.stop_job(job_id) == [stage.worker]
    assert stage.claim() == []
    with pytest.raises(JobEnded, match="is being stopped"):
        stage.add(job_id, new_run())
    stage.end(running[:1])
    stage.end(running[1:], Failed(ERROR))
    job = stage.get_job(job_id)
    assert (job.status, job.cancelled, job.reason) == (Status.CANCELLED, 7, "enough")
    assert {stage.reason(task) for task in stage.tasks(job_id)} == {"enough"}


def test_runs_that_a_stop_is_about_to_end_are_locked(stage: Stage) -> None:
    """Otherwise another session could end a run, and a retry of the job reopen it, just before the stop ends it."""
    first = new_run()
    job_id = stage.job(first, new_run(on=[first.id]))
    stage.do(lambda: ops.stop_job(job_id, Status.CANCELLED, "enough"))
    with psycopg.connect(stage.url) as stopper:
        held = driver.run(stopper, iter(stopping.hold(job_id, 10)))
        assert sorted(held) == stage.tasks(job_id)
        for place in ("ready", "waiting"):
            assert stage.rows(f"select run_id from holdfast.{place}") != []
            assert stage.rows(f"select run_id from holdfast.{place} for update skip locked") == []
        stopper.rollback()
    stage.stop_job(job_id)


def test_a_job_without_tasks_stops_at_once(stage: Stage) -> None:
    job_id = stage.job()
    assert stage.get_job(job_id).status is Status.PENDING
    stage.stop_job(job_id)
    assert stage.get_job(job_id).status is Status.CANCELLED


def test_interrupted_stops_and_passed_deadlines_are_found(stage: Stage) -> None:
    cut = stage.job(new_run())
    late = stage.job(new_run(), timeout=timedelta(hours=1))
    stage.job(new_run(), timeout=timedelta(hours=9))
    assert stage.do(ops.jobs_to_stop) == []
    stage.do(lambda: ops.stop_job(cut, Status.CANCELLED, "enough"))
    stage.connection.execute("update holdfast.jobs set deadline_at = deadline_at - interval '2 hours'")
    found = stage.do(ops.jobs_to_stop)
    assert [(job.id, job.marked) for job in found] == [(cut, True), (late, False)]
    assert "timed out" in found[1].reason
    stage.stop_job(cut)
    assert [job.id for job in stage.do(ops.jobs_to_stop)] == [late]


def test_job_past_its_deadline_is_failed(stage: Stage) -> None:
    job_id = stage.job(new_run(), timeout=timedelta(hours=1))
    stage.do(lambda: ops.stop_job(job_id, Status.FAILED, "timed out"))
    while not stage.do(lambda: ops.stop_some(job_id, "timed out")).done:
        pass
    job = stage.get_job(job_id)
    assert (job.status, job.reason, job.cancelled) == (Status.FAILED, "timed out", 1)
    stage.do(lambda: ops.retry_failed_tasks(job_id, "me"))
    again = stage.get_job(job_id)
    assert (again.status, again.deadline_at >= job.deadline_at) == (Status.PENDING, True)
    stage.drain()


def test_nothing_is_retried_while_its_job_is_being_stopped(stage: Stage) -> None:
    job_id = stage.job(new_run(), new_run(), new_run())
    failed, running, _ = stage.tasks(job_id)
    claims = {claim.run_id: claim for claim in stage.claim(2)}
    stage.fail([claims[failed]])
    stage.stop_job(job_id)
    for attempt in (lambda: ops.retry(failed, "me"), lambda: ops.retry_failed_tasks(job_id, "me")):
        with pytest.raises(JobEnded, match="is being stopped; retry what was cancelled once it has ended"):
            stage.do(attempt)
    stage.stop([claims[running]])
    assert stage.get_job(job_id).status is Status.CANCELLED
    assert stage.do(lambda: ops.retry_failed_tasks(job_id, "me")) == 3
    assert sorted(stage.drain()) == stage.tasks(job_id)


def test_a_stop_that_begins_during_a_retry_wins(stage: Stage) -> None:
    job_id = stage.job(new_run(), new_run())
    failed, _ = stage.tasks(job_id)
    stage.fail(stage.claim(1))
    reopening = iter(jobs.reopen({job_id: Move(failed=1, broken=1)}))
    stage.do(lambda: ops.stop_job(job_id, Status.CANCELLED, "enough"))
    assert stage.do(lambda: reopening) == 0
    assert stage.get_job(job_id).cancel_requested_at is not None
    stage.stop_job(job_id)
    assert stage.status(failed) == "FAILED"


def test_late_stop_does_not_affect_a_retried_job(stage: Stage) -> None:
    job_id = stage.job(new_run(), new_run())
    stage.stop_job(job_id)
    stage.do(lambda: ops.retry_failed_tasks(job_id, "me"))
    claims = stage.claim(1)
    assert stage.do(lambda: ops.stop_some(job_id, "enough")) == (True, [])
    stage.end(claims)
    assert len(stage.drain()) == 1
    assert stage.get_job(job_id).status is Status.SUCCEEDED


def test_cancelling_a_job_after_its_last_run_ended_raises_job_ended(stage: Stage, database_url: str) -> None:
    job_id = stage.job(new_run())
    claims = stage.claim()
    with psycopg.connect(database_url, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        with stage.connection.transaction():
            stage.end(claims)
            stopped = pool.submit(
                driver.transact, other, lambda: ops.stop_job(job_id, Status.CANCELLED, "not needed any more")
            )
            eventually(lambda: _waits_for_a_lock(database_url, other.info.backend_pid))
        with pytest.raises(JobEnded, match="already ended SUCCEEDED"):
            stopped.result(30)


def _waits_for_a_lock(database_url: str, pid: int) -> bool:
    with psycopg.connect(database_url) as connection:
        found = connection.execute("select cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone()
        return found == (True,)
