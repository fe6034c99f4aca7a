"""Moments at which a worker could give up too late, hand back too early, or leave before it has reported everything."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

import psycopg
import pytest

from holdfast import ops
from holdfast.assembly.worker import WorkerRequest, worker_options
from holdfast.domain.execution import Ended, ExecutorContext
from holdfast.domain.states import Status
from holdfast.domain.tasks import registry
from holdfast.domain.values import Renewal, Settlement
from holdfast.drivers import psycopg as driver
from holdfast.executors.process import ProcessExecutor
from holdfast.runtime.runtime import Runtime
from holdfast.sql import ready
from holdfast.sql import workers as workers_sql
from holdfast.worker.database import Unavailable
from holdfast.worker.renewal import RenewalThread
from holdfast.worker.result_writer import ResultWriter
from holdfast.worker.session import WorkerSession
from holdfast.worker.supervisor import Worker
from tests.integration.wire import Wire
from tests.integration.worker_support import Stage, eventually


class Observed(ProcessExecutor):
    """Exposes the loop that it uses, and signals when the first run has ended in it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.reported = threading.Event()

    async def open(self, context: ExecutorContext) -> None:
        self.loop = asyncio.get_running_loop()

        def report(ended: Sequence[Ended]) -> None:
            context.report(ended)
            self.reported.set()

        await super().open(context._replace(report=report))


def test_worker_whose_renewal_was_answered_late_stops_its_runs_before_the_lease_expires(
    database_url: str, tmp_path: Path
) -> None:
    """The lease counts from when the renewal was sent; when the response arrives, part of it has passed."""
    stage = Stage(database_url, tmp_path, lease_seconds=6.0, renew_seconds=2.0)
    renewals: list[Renewal] = []
    held_at_the_end: list[bool] = []
    fenced = threading.Event()
    session = WorkerSession()

    def fence(why: str) -> None:
        (held,) = stage.query("select expires_at > holdfast.now() from holdfast.workers where id = %s", session.id)
        held_at_the_end.extend(held)
        fenced.set()

    with Runtime(stage.settings) as runtime, psycopg.connect(database_url) as neighbour:
        options = worker_options(runtime, WorkerRequest(slots=1, executor="inline"))
        with psycopg.connect(database_url, autocommit=True) as connection:
            info = session.info(options, "0")
            registered = monotonic()
            driver.transact(connection, lambda: iter(workers_sql.register(info)))
        renewal = RenewalThread(options, session, registered=registered, renewed=renewals.append, fence=fence)
        _lock(neighbour, session.id)
        renewal.start()
        # Longer than the margin, and shorter than a renewal waits for a response.
        eventually(lambda: stage.query(_WAITED_FOR_LONG)[0][0])
        neighbour.commit()
        eventually(lambda: renewals)
        _lock(neighbour, session.id)
        assert fenced.wait(30)
        neighbour.rollback()
        asyncio.run(renewal.stop())
    assert held_at_the_end == [True]
    stage.close()


def test_claim_whose_response_is_in_transit_is_not_handed_back(database_url: str, tmp_path: Path) -> None:
    stage = Stage(database_url, tmp_path, lease_seconds=12.0, renew_seconds=2.0)
    executor = Observed()
    with stage.worker(executor) as worker, psycopg.connect(database_url) as connection:
        stage.ended(stage.submit("echo"))
        run = stage.client.on(connection).submit(
            "patient", {"started": str(stage.file("started")), "until": str(stage.file("go"))}
        )
        claim = driver.run(connection, ops.claim_by_id(worker.id, run.id, registry.names(), 0.5))
        assert claim is not None
        connection.commit()
        # A renewal reports a lease that the worker does not know yet; then the response to the claim arrives.
        eventually(lambda: worker._exchange.session._unknown)
        executor.loop.call_soon_threadsafe(worker._exchange.begin, [claim])
        stage.said("started")
        stage.file("go").touch()
        ended = stage.ended(stage.client.get(run.id))
    assert (ended.status, ended.attempt_count) == (Status.SUCCEEDED, 1)
    assert stage.event_types(ended) == ["SUBMITTED", "CLAIMED", "SUCCEEDED"]
    assert len(stage.said("started")) == 1
    stage.close()


def test_lease_unknown_to_its_worker_is_returned_to_the_queue(database_url: str, tmp_path: Path) -> None:
    stage = Stage(database_url, tmp_path, lease_seconds=60.0, renew_seconds=0.2)
    with stage.worker(slots=1) as worker:
        stage.ended(stage.submit("echo"))
        with psycopg.connect(database_url) as connection:
            run = stage.client.on(connection).submit("echo", {"value": 5})
            assert driver.run(connection, ops.claim_by_id(worker.id, run.id, registry.names(), 0.5))
        assert stage.ended(stage.client.get(run.id)).result() == 5
    stage.close()


async def connected(worker: Worker) -> None:
    """Wait until the worker is connected, so that its first write is not lost."""
    for _ in range(200):
        with suppress(Unavailable):
            return await worker._database.transact(lambda: iter(ready.ring([])))
        await asyncio.sleep(0.05)
    raise AssertionError("the worker did not get a connection")


def test_stopping_worker_reports_ended_runs_before_it_exits(database_url: str, tmp_path: Path, wire: Wire) -> None:
    """The database becomes reachable at the last moment, after the grace period and before the worker exits."""

    class Leaving(Observed):
        async def close(self) -> None:
            wire.mend()
            await connected(workers[0])
            await super().close()

    stage = Stage(database_url, tmp_path, lease_seconds=60.0, renew_seconds=0.2, grace_seconds=0.2)
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")), report=False)
    executor = Leaving()
    workers: list[Worker] = []
    with stage.worker(executor, database_url=wire.url) as worker:
        workers.append(worker)
        stage.said("started")
        wire.cut()
        stage.file("go").touch()
        assert executor.reported.wait(30)
    assert (stage.client.get(run).status, stage.client.get(run).attempt_count) == (Status.SUCCEEDED, 1)
    assert stage.event_types(run) == ["SUBMITTED", "CLAIMED", "SUCCEEDED"]
    stage.close()


def test_deferred_result_is_written_by_a_worker_that_leaves_although_its_last_check_was_interrupted(
    database_url: str, tmp_path: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database stops responding while a user's transaction blocks the result, and both come to an end."""

    class Leaving(Observed):
        async def close(self) -> None:
            wire.cut()
            wire.mend()
            user.commit()
            await connected(workers[0])
            await super().close()

    find_free, checking = ResultWriter.find_free, threading.Event()

    async def check(self: ResultWriter, settlements: Sequence[Settlement], *, again: bool = False) -> list[Settlement]:
        if again and not checking.is_set():
            wire.swallow()
            checking.set()
        return await find_free(self, settlements, again=again)

    monkeypatch.setattr(ResultWriter, "find_free", check)
    stage = Stage(database_url, tmp_path, lease_seconds=60.0, renew_seconds=0.2, grace_seconds=0.5)
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")), report=False)
    workers: list[Worker] = []
    with psycopg.connect(database_url) as user, stage.worker(Leaving(), database_url=wire.url) as worker:
        workers.append(worker)
        stage.said("started")
        stage.client.on(user).submit("echo", {}, depends_on=[run.id])
        stage.file("go").touch()
        assert checking.wait(30)
    assert (stage.client.get(run).status, stage.client.get(run).attempt_count) == (Status.SUCCEEDED, 1)
    assert stage.event_types(run) == ["SUBMITTED", "CLAIMED", "SUCCEEDED"]
    stage.close()


def test_stopped_worker_holds_no_leases_and_is_marked_as_stopped(database_url: str, tmp_path: Path) -> None:
    stage = Stage(database_url, tmp_path, lease_seconds=60.0, renew_seconds=0.2, grace_seconds=0.2)
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    with stage.worker(slots=1):
        stage.said("started")
    assert stage.client.get(run).status is Status.PENDING
    assert stage.query("select count(*) from holdfast.leases") == [(0,)]
    assert stage.query("select stopped_at is not null, expires_at <= holdfast.now() from holdfast.workers") == [
        (True, True)
    ]
    stage.close()


_WAITED_FOR_LONG = """
    select exists (select from pg_stat_activity
                   where application_name = 'holdfast renewal' and datname = current_database()
                   and wait_event_type = 'Lock' and clock_timestamp() - query_start > interval '1.4 seconds')
"""


def _lock(connection: psycopg.Connection, worker_id: str) -> None:
    """Lock the worker's row, so that its renewals wait."""
    connection.execute("select from holdfast.workers where id = %s for update", [worker_id])
