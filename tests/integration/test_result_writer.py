"""Results that cannot be written at once are kept until the database has them, whatever interrupts the worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.execution import Ended
from holdfast.domain.ids import new_id, series
from holdfast.domain.jobs import NewJob
from holdfast.domain.settling import NotBegun, Succeeded, settle
from holdfast.domain.values import Position, Settlement
from holdfast.drivers import psycopg as driver
from holdfast.ops.create import FIRST_TASKS
from holdfast.worker.database import Busy, Database
from holdfast.worker.outages import Outage
from holdfast.worker.pending_results import CHECKED_BATCHES, FIRST_PAUSE
from holdfast.worker.result_writer import ResultWriter
from holdfast.worker.results import AttemptResults
from holdfast.worker.session import WorkerSession
from tests.integration.worker_support import DEADLINE
from tests.timeline import Timeline, Worker, new_run

Write = Callable[[ResultWriter, AttemptResults, Sequence[Settlement]], Coroutine[Any, Any, None]]


class Performing:
    """Performs operations on one connection, for a timeline."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def perform(self, make_op: Any) -> Any:
        return driver.transact(self.connection, make_op)


class Writing:
    """A writer of results, and the results of three runs of a job that have ended."""

    def __init__(self, url: str, worker: Worker, claims: Sequence[Any]) -> None:
        self.session = WorkerSession()
        self.session.id = worker.id
        self.session.held = {claim.run_id: claim for claim in claims}
        self.results = AttemptResults(self.session, lambda queue, delay: None)
        self.settlements = [settle(claim, Succeeded("1"), 0.0) for claim in claims]
        # It waits longer for locks than the connection of a real worker, so that a test can interrupt it.
        self.database = Database(url, "worker")
        self.writer = ResultWriter(self.database, lambda: self.results, Outage(asyncio.Event()), self._spread)

    async def _spread(self, queues: frozenset[str]) -> None:
        """No other worker is there to be notified."""

    def kept(self) -> list[str]:
        return sorted(one.ref.run_id for one in self.results.pending.unsettled())


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def writing(database_url: str, connection: psycopg.Connection[Any]) -> AsyncIterator[Writing]:
    timeline = Timeline(Performing(connection), connection)
    job_id = new_id()
    ids = series(job_id, FIRST_TASKS, 3, first=True)
    timeline.perform(lambda: ops.create_job(NewJob(job_id, "job"), [new_run(id=one, job_id=job_id) for one in ids]))
    worker = timeline.worker("a", tasks=("work",))
    claims = timeline.perform(lambda: ops.claim(worker.id, [Position("default")], ["work"], 3))
    writing = Writing(database_url, worker, claims)
    yield writing
    await writing.database.close()


async def revisit(writer: ResultWriter, results: AttemptResults, settlements: Sequence[Settlement]) -> None:
    locked, unexplained, refused = settlements
    results.pending.deferred.add_locked([locked])
    results.pending.deferred.add_unexplained([unexplained])
    results.pending.deferred.add_refused(refused)
    await writer.revisit()


async def write_around_locks(writer: ResultWriter, results: AttemptResults, settlements: Sequence[Settlement]) -> None:
    with writer.keeping(settlements):
        await writer.write_around_locks(settlements)


async def write_one_by_one(writer: ResultWriter, results: AttemptResults, settlements: Sequence[Settlement]) -> None:
    with writer.keeping(settlements):
        await writer.write_one_by_one(settlements)


async def waits_for_a_lock(connection: psycopg.Connection[Any]) -> None:
    """Return once a statement waits for a lock in this database."""
    waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    async with asyncio.timeout(DEADLINE):
        while connection.execute(waiting).fetchone() is None:  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0.001)


async def test_lease_that_is_being_returned_is_not_returned_again(
    database_url: str, connection: psycopg.Connection[Any], writing: Writing
) -> None:
    results, unknown = writing.results, writing.settlements[0].ref
    writing.session.held.clear()
    with psycopg.connect(database_url) as user:
        driver.run(user, ops.cancel(unknown.run_id, "by the user"))
        for _ in range(2):
            # Each renewal reports the lease, and each attempt to return it is blocked by the transaction of the user.
            results.return_unknown_leases([unknown])
            await writing.writer.write_around_locks(results.pending.take())
        # Returned a second time, after it was claimed again, the attempt would lose its lease while it is executed.
        assert writing.kept() == [unknown.run_id]
    await writing.writer.revisit()
    await writing.writer.write_around_locks(results.pending.take())
    assert connection.execute("select cancelled from holdfast.jobs").fetchone() == (1,)
    assert writing.kept() == []


async def test_run_that_an_executor_reports_as_not_begun_is_not_held_once_it_was_returned(
    connection: psycopg.Connection[Any], writing: Writing
) -> None:
    results, claims = writing.results, list(writing.session.held.values())
    results.report([Ended(claim, NotBegun()) for claim in claims])
    await writing.writer.write_around_locks(results.pending.take())
    assert connection.execute("select count(*) from holdfast.ready").fetchone() == (3,)
    assert (writing.session.held, writing.kept()) == ({}, [])


@pytest.mark.parametrize("write", [revisit, write_around_locks, write_one_by_one])
async def test_results_are_kept_if_the_worker_is_interrupted_while_it_writes_them(
    database_url: str, connection: psycopg.Connection[Any], writing: Writing, write: Write
) -> None:
    with psycopg.connect(database_url) as user:
        user.execute("lock table holdfast.leases in access exclusive mode")
        under_way = asyncio.create_task(write(writing.writer, writing.results, writing.settlements))
        await waits_for_a_lock(connection)
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
    assert writing.kept() == sorted(one.ref.run_id for one in writing.settlements)


async def test_results_that_are_kept_already_are_not_kept_twice_if_the_worker_is_interrupted(writing: Writing) -> None:
    first, *_ = writing.settlements
    with suppress(asyncio.CancelledError), writing.writer.keeping(writing.settlements):
        writing.results.pending.deferred.add_locked([first])
        raise asyncio.CancelledError
    assert writing.kept() == sorted(one.ref.run_id for one in writing.settlements)
    assert first not in writing.results.pending.doubtful


@pytest.mark.parametrize("error", [Busy("a lock"), psycopg.errors.InsufficientPrivilege("a privilege")])
async def test_results_are_deferred_if_it_cannot_be_found_out_what_blocks_them(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def refuse(make_op: object) -> None:
        raise error

    monkeypatch.setattr(writing.database, "transact", refuse)
    assert await writing.writer.find_free(writing.settlements) == []
    assert writing.results.pending.deferred.locked == writing.settlements


async def test_result_is_deferred_if_not_even_its_failure_can_be_stored(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str | None] = []

    async def refuse(settlements: Sequence[Settlement]) -> None:
        written.extend(one.outcome for one in settlements)
        assert len(written) <= 2
        raise psycopg.DataError("a value")

    monkeypatch.setattr(writing.writer, "_write", refuse)
    first, *_ = writing.settlements
    await writing.writer._write_alone(first)
    assert written == ["SUCCEEDED", "FAILED"]
    assert writing.results.pending.deferred.refused == [first]


async def test_nothing_is_due_after_the_last_deferred_result_was_found_free(writing: Writing) -> None:
    deferred = writing.results.pending.deferred
    deferred.add_locked(writing.settlements)
    await writing.writer.revisit()
    assert len(writing.results.pending.waiting) == 3
    assert (len(deferred), deferred.due_at, deferred._pause) == (0, inf, FIRST_PAUSE)


async def test_interval_between_checks_starts_over_after_a_result_was_written_that_was_blocked_by_an_unknown_lock(
    writing: Writing,
) -> None:
    deferred = writing.results.pending.deferred
    deferred.add_unexplained(writing.settlements)
    await writing.writer.revisit()
    assert (len(deferred), deferred.due_at, deferred._pause) == (0, inf, FIRST_PAUSE)


async def test_results_of_a_locked_job_are_not_retried_one_by_one_because_another_result_is_invalid(
    database_url: str, writing: Writing
) -> None:
    with psycopg.connect(database_url) as user:
        user.execute("select from holdfast.jobs for update")
        await writing.writer.write_one_by_one(writing.settlements)
        assert sorted(one.ref.run_id for one in writing.results.pending.deferred.locked) == writing.kept()
        assert len(writing.kept()) == 3


async def test_batches_are_checked_for_locks_until_ten_were_free_although_an_old_result_is_still_blocked(
    database_url: str, writing: Writing
) -> None:
    deferred = writing.results.pending.deferred
    blocked, *free = writing.settlements
    with psycopg.connect(database_url) as user:
        user.execute("select from holdfast.leases where run_id = %s for update", [blocked.ref.run_id])
        await writing.writer.write_around_locks([blocked])
        for _ in range(CHECKED_BATCHES):
            assert deferred.elsewhere
            assert await writing.writer.find_free(free) == free
            await writing.writer.revisit()
        assert not deferred.elsewhere
        assert deferred.locked == [blocked]


async def test_later_results_of_a_locked_job_are_deferred_without_being_sent(
    database_url: str, writing: Writing
) -> None:
    first, *later = writing.settlements
    with psycopg.connect(database_url) as user:
        user.execute("select from holdfast.jobs for update")
        await writing.writer.write_around_locks([first])
    deferred = writing.results.pending.deferred
    assert deferred.hold_back(later, lambda run_id: writing.session.held[run_id].job_id) == []
    assert len(writing.kept()) == 3


async def test_results_with_unknown_locks_that_are_not_retried_yet_stay_deferred(
    database_url: str, writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.result_writer.UNEXPLAINED_AT_ONCE", 1)
    deferred = writing.results.pending.deferred
    deferred.add_unexplained(writing.settlements)
    with psycopg.connect(database_url) as user:
        user.execute("select from holdfast.jobs for update")
        await writing.writer.revisit()
    assert deferred.unexplained == [*writing.settlements[1:], writing.settlements[0]]
    for left in (2, 1, 0):
        await writing.writer.revisit()
        assert len(deferred) == left


async def test_parts_that_were_not_sent_are_kept_if_the_connection_breaks(
    database_url: str, connection: psycopg.Connection[Any], writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = writing.writer._write

    async def write_and_break(settlements: Sequence[Settlement], *, briefly: bool = False) -> None:
        try:
            await write(settlements, briefly=briefly)
        finally:
            connection.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
                " where datname = current_database() and application_name = 'holdfast worker'"
            )

    monkeypatch.setattr(writing.writer, "_write", write_and_break)
    with psycopg.connect(database_url) as user:
        user.execute("select from holdfast.jobs for update")
        await writing.writer._write_in_parts(writing.settlements)
    assert writing.kept() == sorted(one.ref.run_id for one in writing.settlements)
    assert len(writing.results.pending.doubtful) == 1
