"""Operations in a caller's transaction that keeps its first snapshot: they are right, or they fail to serialize.

The snapshot is taken, another session commits something that the operation relies on, and then the operation runs.
What others committed may be invisible to it, but a row that changed since cannot be changed or locked, and a key that
is in use cannot be inserted again: Postgres raises a serialization failure, and the caller retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import ConfigurationError, HoldfastError
from holdfast.domain.ids import derived_id
from holdfast.domain.states import Status
from holdfast.drivers import psycopg as driver
from holdfast.sql.statement import Op
from tests.integration.jobs_support import Stage, new_run, stage

__all__ = ["stage"]


@pytest.fixture(params=["repeatable read", "serializable"])
def snapshot(request: pytest.FixtureRequest, database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"set default_transaction_isolation = '{request.param}'")
        yield connection


def refused(snapshot: psycopg.Connection[Any], meanwhile: Callable[[], Any], make_op: Callable[[], Op[Any]]) -> None:
    """The operation fails to serialize once `meanwhile` has happened, and leaves nothing behind."""

    def perform() -> None:
        with snapshot.transaction():
            snapshot.execute("select 1 from holdfast.jobs limit 1")
            meanwhile()
            driver.run(snapshot, make_op())

    with pytest.raises(psycopg.errors.SerializationFailure):
        perform()


def test_a_key_used_by_a_concurrent_request_creates_no_second_run(
    stage: Stage, snapshot: psycopg.Connection[Any]
) -> None:
    refused(snapshot, lambda: stage.submit(new_run(key="k")), lambda: ops.submit(new_run(key="k")))
    assert stage.rows("select count(*) from holdfast.runs") == [(1,)]


def test_run_created_in_the_meantime_is_not_created_twice(stage: Stage, snapshot: psycopg.Connection[Any]) -> None:
    new = new_run()
    refused(snapshot, lambda: stage.submit(new), lambda: ops.submit(new))
    assert stage.rows("select count(*) from holdfast.ready") == [(1,)]


def test_dedupe_is_refused(stage: Stage, snapshot: psycopg.Connection[Any]) -> None:
    with pytest.raises(ConfigurationError, match="READ COMMITTED"), snapshot.transaction():
        driver.run(snapshot, ops.submit(new_run(dedupe="active")))


@pytest.mark.parametrize("meanwhile", ["claimed", "ended"])
def test_a_cancel_does_not_miss_a_concurrent_transition(
    stage: Stage, snapshot: psycopg.Connection[Any], meanwhile: str
) -> None:
    (made,) = stage.submit(new_run())

    def moves() -> None:
        claims = stage.claim()
        if meanwhile == "ended":
            stage.end(claims)

    refused(snapshot, moves, lambda: ops.cancel(made.run.id, "no need"))


def test_cancel_of_a_running_run_does_not_miss_its_end(stage: Stage, snapshot: psycopg.Connection[Any]) -> None:
    (made,) = stage.submit(new_run())
    claims = stage.claim()
    refused(snapshot, lambda: stage.end(claims), lambda: ops.cancel(made.run.id, "no need"))
    assert stage.status(made.run.id) == "SUCCEEDED"


def test_a_run_is_reopened_once(stage: Stage, snapshot: psycopg.Connection[Any]) -> None:
    (made,) = stage.submit(new_run())
    stage.fail(stage.claim())
    refused(snapshot, lambda: stage.do(lambda: ops.retry(made.run.id, "a")), lambda: ops.retry(made.run.id, "b"))
    assert stage.rows("select count(*) from holdfast.ready") == [(1,)]


def test_dependent_does_not_wait_for_a_run_that_ended_in_the_meantime(
    stage: Stage, snapshot: psycopg.Connection[Any]
) -> None:
    (made,) = stage.submit(new_run())
    claims = stage.claim()
    refused(snapshot, lambda: stage.end(claims), lambda: ops.submit(new_run(on=[made.run.id])))
    assert stage.rows("select count(*) from holdfast.waiting") == [(0,)]


def test_nothing_is_added_to_a_job_that_ended_in_the_meantime(stage: Stage, snapshot: psycopg.Connection[Any]) -> None:
    job = stage.job(new_run())
    claims = stage.claim()
    more = new_run(derived_id(job, "more"), job_id=job)
    refused(snapshot, lambda: stage.end(claims), lambda: ops.add_tasks([more], None))
    assert stage.get_job(job).status is Status.SUCCEEDED


@pytest.mark.parametrize("meanwhile", ["ended", "grown"])
def test_cancelling_a_job_does_not_miss_concurrent_changes(
    stage: Stage, snapshot: psycopg.Connection[Any], meanwhile: str
) -> None:
    job = stage.job(new_run())
    claims = stage.claim()
    refused(
        snapshot,
        (lambda: stage.end(claims)) if meanwhile == "ended" else (lambda: stage.add(job, new_run())),
        lambda: ops.stop_job(job, Status.CANCELLED, "enough"),
    )
    assert stage.get_job(job).cancel_requested_at is None


def test_cancelling_a_job_does_not_miss_a_run_that_was_claimed_concurrently(
    stage: Stage, snapshot: psycopg.Connection[Any]
) -> None:
    job = stage.job(new_run(), new_run())
    stage.do(lambda: ops.stop_job(job, Status.CANCELLED, "enough"))
    refused(snapshot, stage.claim, lambda: ops.stop_some(job, "enough"))


def test_pruning_is_refused(stage: Stage, snapshot: psycopg.Connection[Any]) -> None:
    with pytest.raises(HoldfastError, match="READ COMMITTED"), snapshot.transaction():
        driver.run(snapshot, ops.prune(timedelta(days=90)))
