"""A client that submits a run hands it to a waiting worker, and every such run is executed once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from holdfast.assembly.worker import listen_to
from holdfast.client import Client, Run
from holdfast.domain.doorbell import HANDED, LISTENING, Address
from holdfast.domain.ids import new_id
from holdfast.domain.states import Status
from holdfast.domain.values import WorkerInfo
from holdfast.drivers import psycopg as driver
from holdfast.runtime.settings import Settings
from holdfast.sql import waiting_workers, workers
from tests.integration.worker_support import Stage, eventually, kill_tree

FAR = {"poll_every": 600.0, "poll_every_listening": 600.0, "rescue_every": 600.0}


class WithholdingListener:
    """A listener that withholds hand-overs until the test releases them."""

    def __init__(self, url: str) -> None:
        self._listener: Any = listen_to(url)
        self.kept: list[str] = []
        self.release: Callable[[], None] = lambda: None

    @property
    def live(self) -> bool:
        return bool(self._listener.live)

    @property
    def address(self) -> Address | None:
        address: Address | None = self._listener.address
        return address

    async def listen(self, on_hints: Callable[[frozenset[str]], None]) -> None:
        loop = asyncio.get_running_loop()
        self.release = lambda: [loop.call_soon_threadsafe(on_hints, frozenset((hint,))) for hint in self.kept] and None

        def pass_on(hints: frozenset[str]) -> None:
            handed = [hint for hint in hints if hint.startswith(HANDED)]
            self.kept += handed
            if not handed:
                on_hints(hints)

        await self._listener.listen(pass_on)


class OpenListener:
    """A listener to which anyone can publish, such as Redis."""

    live = False
    address = None

    def __init__(self) -> None:
        self.listening = threading.Event()

    async def listen(self, on_hints: Callable[[frozenset[str]], None]) -> None:
        loop = asyncio.get_running_loop()
        self.publish = lambda hint: loop.call_soon_threadsafe(on_hints, frozenset((hint,)))
        self.listening.set()
        await asyncio.Event().wait()


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path)
    yield stage
    stage.close()


RARELY_RENEWING = {"lease_seconds": 600.0, "renew_seconds": 200.0}


@pytest.fixture
def rarely_renewing(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A stage whose workers do not return a lease they do not know, because they renew too rarely to find it."""
    stage = Stage(database_url, tmp_path, **RARELY_RENEWING)
    yield stage
    stage.close()


def waits(stage: Stage) -> bool:
    return stage.query("select count(*) from holdfast.waiting_workers where since is not null") == [(1,)]


def is_handed_over(stage: Stage, run: Run) -> bool:
    """Whether the run was leased by the statement that created it."""
    found = stage.query(
        """
        select claimed_at = created_at from holdfast.runs join (
            select run_id, claimed_at from holdfast.leases
            union all select run_id, claimed_at from holdfast.attempts) as claimed on claimed.run_id = runs.id
        where runs.id = %s
        """,
        run.id,
    )
    return found == [(True,)]


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_waiting_worker_is_handed_one_run_after_another(stage: Stage, executor: str) -> None:
    with stage.worker(executor, **FAR):
        for value in range(3):
            eventually(lambda: waits(stage))
            run = stage.submit("echo", value=value)
            assert stage.ended(run).status is Status.SUCCEEDED
            assert is_handed_over(stage, run)
            assert stage.attempts(run) == [(1, "SUCCEEDED", "SUCCEEDED", None)]
            assert stage.event_types(run) == ["SUBMITTED", "CLAIMED", "SUCCEEDED"]


def test_run_with_large_parameters_is_read_by_the_worker(stage: Stage) -> None:
    with stage.worker("inline", **FAR):
        eventually(lambda: waits(stage))
        run = stage.submit("echo", value="x" * 20_000)
        assert stage.ended(run).status is Status.SUCCEEDED
    assert is_handed_over(stage, run)


def test_malformed_notification_does_not_end_the_worker(stage: Stage) -> None:
    with stage.worker("inline", **FAR):
        eventually(lambda: waits(stage))
        stage.query("select pg_notify(channel, worker_id || '[]') from holdfast.waiting_workers")
        run = stage.submit("echo")
        assert stage.ended(run).status is Status.SUCCEEDED
        eventually(lambda: waits(stage))


def test_worker_with_a_free_slot_waits_again_while_it_executes_a_run(stage: Stage) -> None:
    started, until = stage.file("started"), stage.file("until")
    with stage.worker("process", slots=2, **FAR):
        eventually(lambda: waits(stage))
        first = stage.submit("patient", started=str(started), until=str(until))
        eventually(lambda: waits(stage))
        second = stage.submit("echo")
        assert stage.ended(second).status is Status.SUCCEEDED
        until.touch()
        assert stage.ended(first).status is Status.SUCCEEDED
    assert is_handed_over(stage, first)
    assert is_handed_over(stage, second)


def test_worker_that_claims_a_run_no_longer_waits(stage: Stage) -> None:
    started, until = stage.file("started"), stage.file("until")
    with stage.worker("process", slots=1, **FAR):
        eventually(lambda: waits(stage))
        (first,) = stage.client.submit_many("patient", [{"started": str(started), "until": str(until)}])
        stage.said("started")
        second = stage.submit("echo")
        assert not waits(stage)
        assert stage.client.get(second).status is Status.PENDING
        until.touch()
        assert {stage.ended(run).status for run in (first, second)} == {Status.SUCCEEDED}
    assert not is_handed_over(stage, first)


def test_run_whose_notification_is_lost_is_found_and_costs_no_attempt(rarely_renewing: Stage) -> None:
    stage = rarely_renewing
    listener = WithholdingListener(stage.url)
    with stage.worker("inline", listener=listener, **{**FAR, "poll_every_listening": 0.2}):
        eventually(lambda: waits(stage))
        run = stage.submit("only_attempt", marks=str(stage.file("marks")))
        assert stage.ended(run).status is Status.SUCCEEDED
        # A notification that arrives late does not start the run again.
        eventually(lambda: listener.kept)
        listener.release()
        eventually(lambda: waits(stage))
        assert stage.ended(stage.submit("echo")).status is Status.SUCCEEDED
    assert is_handed_over(stage, run)
    assert stage.attempts(run) == [(1, "SUCCEEDED", "SUCCEEDED", None)]
    assert stage.said("marks") == ["ran"]


def test_notification_that_arrives_after_the_run_was_returned_does_not_begin_it(
    database_url: str, tmp_path: Path
) -> None:
    # Renewals are so frequent that the worker returns the run before it looks for what it was given.
    stage = Stage(database_url, tmp_path, lease_seconds=60.0, renew_seconds=0.2)
    listener = WithholdingListener(stage.url)
    try:
        with stage.worker("inline", listener=listener, **FAR):
            eventually(lambda: waits(stage))
            # After two renewals the worker returns the lease, and then it claims the run.
            run = stage.submit("only_attempt", marks=str(stage.file("marks")))
            assert stage.ended(run).status is Status.SUCCEEDED
            eventually(lambda: listener.kept)
            listener.release()
            assert stage.ended(stage.submit("echo")).status is Status.SUCCEEDED
        assert stage.attempts(run) == [(1, "SUCCEEDED", "SUCCEEDED", None)]
        assert stage.said("marks") == ["ran"]
    finally:
        stage.close()


def test_worker_that_waits_again_finds_what_it_was_given_before(rarely_renewing: Stage) -> None:
    stage = rarely_renewing
    listener = WithholdingListener(stage.url)
    with stage.worker("inline", listener=listener, **FAR):
        eventually(lambda: waits(stage))
        given = stage.submit("only_attempt", marks=str(stage.file("marks")))
        eventually(lambda: listener.kept)
        (claimed,) = stage.client.submit_many("echo", [{"value": 1}])
        assert stage.ended(claimed).status is Status.SUCCEEDED
        assert stage.ended(given).status is Status.SUCCEEDED
    assert is_handed_over(stage, given)


def test_run_handed_to_a_worker_that_stops_is_executed_by_another_as_its_first_attempt(
    rarely_renewing: Stage,
) -> None:
    stage = rarely_renewing
    listener = WithholdingListener(stage.url)
    with stage.worker("inline", listener=listener, **FAR):
        eventually(lambda: waits(stage))
        run = stage.submit("only_attempt", marks=str(stage.file("marks")))
        eventually(lambda: listener.kept)
        assert is_handed_over(stage, run)
    with stage.worker("inline"):
        assert stage.ended(run).status is Status.SUCCEEDED
    assert stage.attempts(run) == [(1, "SUCCEEDED", "SUCCEEDED", None)]


def test_stopped_worker_no_longer_waits(stage: Stage) -> None:
    with stage.worker("inline", **FAR):
        eventually(lambda: waits(stage))
    run = stage.submit("echo")
    assert stage.client.get(run).status is Status.PENDING


def test_draining_worker_no_longer_waits(stage: Stage) -> None:
    started, until = stage.file("started"), stage.file("until")
    with stage.worker("process", slots=2, **FAR) as worker:
        eventually(lambda: waits(stage))
        first = stage.submit("patient", started=str(started), until=str(until))
        eventually(lambda: waits(stage))
        stage.client.drain_worker(worker.id)
        run = stage.submit("echo")
        assert not is_handed_over(stage, run)
        eventually(lambda: not waits(stage))
        until.touch()
        assert stage.ended(first).status is Status.SUCCEEDED


def test_run_is_not_handed_to_a_worker_that_was_killed(stage: Stage) -> None:
    process = stage.start("--executor", "inline")
    eventually(lambda: waits(stage))
    ((listener,),) = stage.query("select listener from holdfast.waiting_workers")
    kill_tree(process)
    eventually(lambda: not stage.query("select from pg_stat_activity where pid = %s", listener))
    run = stage.submit("echo")
    assert stage.client.get(run).status is Status.PENDING
    with stage.worker("inline"):
        assert stage.ended(run).status is Status.SUCCEEDED
    assert stage.attempts(run) == [(1, "SUCCEEDED", "SUCCEEDED", None)]


def test_worker_that_lost_its_connection_waits_on_the_next_one(stage: Stage) -> None:
    with stage.worker("inline", **FAR):
        eventually(lambda: waits(stage))
        ((listener,),) = stage.query("select listener from holdfast.waiting_workers")
        stage.query("select pg_terminate_backend(%s)", listener)
        eventually(lambda: stage.query("select listener from holdfast.waiting_workers") != [(listener,)])
        run = stage.submit("echo")
        assert stage.ended(run).status is Status.SUCCEEDED
    assert is_handed_over(stage, run)


def test_claim_from_a_listener_without_an_address_is_ignored(stage: Stage) -> None:
    listener = OpenListener()
    parameters = orjson.dumps({"marks": str(stage.file("marks"))}).decode()
    with stage.worker("inline", listener=listener) as worker:
        listener.listening.wait()
        row = [new_id(), 1, 0, "only_attempt", "default", parameters, "ab" * 32, None, 0, 0, None, None, 0, "-infinity"]
        listener.publish(HANDED + worker.id + orjson.dumps(row).decode())
        assert stage.ended(stage.submit("only_attempt", marks=str(stage.file("others")))).status is Status.SUCCEEDED
    assert not stage.file("marks").exists()


def test_claim_of_another_session_is_ignored(stage: Stage) -> None:
    parameters = orjson.dumps({"marks": str(stage.file("marks"))}).decode()
    row = [new_id(), 1, 0, "only_attempt", "default", parameters, "ab" * 32, None, 0, 0, None, None, 0, "-infinity"]
    with stage.worker("inline", **FAR):
        eventually(lambda: waits(stage))
        ((channel,),) = stage.query("select channel from holdfast.waiting_workers")
        stage.query("select pg_notify(%s, %s)", channel, new_id() + orjson.dumps(row).decode())
        for name in ("first", "second"):
            assert stage.ended(stage.submit("only_attempt", marks=str(stage.file(name)))).status is Status.SUCCEEDED
    assert not stage.file("marks").exists()


def test_worker_with_until_empty_does_not_wait(stage: Stage) -> None:
    run = stage.submit("echo")
    with stage.worker("inline", until_empty=True):
        assert stage.ended(run).status is Status.SUCCEEDED
    assert stage.query("select count(*) from holdfast.waiting_workers") == [(0,)]


def test_worker_behind_a_pooler_does_not_wait(pooled_url: str, tmp_path: Path) -> None:
    stage = Stage(pooled_url, tmp_path)
    try:
        with stage.worker("inline") as worker:
            assert stage.ended(stage.submit("echo")).status is Status.SUCCEEDED
            assert worker.options.listener.address is None
        assert stage.query("select count(*) from holdfast.waiting_workers") == [(0,)]
    finally:
        stage.close()


def test_run_of_a_callers_transaction_is_not_handed_over(database_url: str) -> None:
    with (
        Client(Settings(database_url=database_url, tasks=("tests.integration.worker_tasks",))) as client,
        psycopg.connect(database_url, autocommit=True) as mine,
        psycopg.connect(database_url, autocommit=True) as other,
    ):
        info = WorkerInfo(new_id(), "host", 1, "a", "inline", "0", 1, timedelta(minutes=1), tasks=("echo",))
        driver.run(other, iter(workers.register(info)))
        other.execute("select pg_advisory_lock(%s, pg_backend_pid())", [LISTENING])
        address = Address("holdfast_of_a_test", other.info.backend_pid)
        assert driver.run(other, iter(waiting_workers.wait(info.id, address, None, ["echo"]))).waits
        with mine.transaction():
            run = client.on(mine).submit("echo")
            assert other.execute("select count(*) from holdfast.leases").fetchone() == (0,)
            other.execute("select from holdfast.waiting_workers for update nowait")
        assert client.get(run).status is Status.PENDING
        assert client.get(client.submit("echo", queue="another")).status is Status.RUNNING
