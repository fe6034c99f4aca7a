"""Workers that die, are suspended or lose their database, and what happens to their runs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from holdfast import ops
from holdfast.assembly.worker import WorkerRequest, worker_options
from holdfast.domain.errors import DatabaseUnreachable
from holdfast.domain.ids import new_id
from holdfast.domain.settling import HandedBack, settle
from holdfast.domain.states import Status
from holdfast.domain.values import Position, WorkerInfo
from holdfast.doorbells.poll import PollListener
from holdfast.drivers import psycopg as driver
from holdfast.processes.family import alive, family
from holdfast.runtime.runtime import Runtime
from holdfast.sql import workers
from holdfast.worker import Worker
from tests.integration.worker_support import Stage, eventually, freeze, kill_tree, thaw


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path)
    yield stage
    stage.close()


@pytest.mark.parametrize("task", ["segfault", "system_exit"])
def test_crash_of_the_child_counts_as_an_attempt(stage: Stage, task: str) -> None:
    run = stage.submit(task)
    with stage.worker():
        ended = stage.ended(run)
        after = stage.ended(stage.submit("echo", value=1))
    attempt = stage.client.attempts(run)[0]
    assert (ended.status, attempt.status, attempt.reason) == (Status.FAILED, "FAILED", "crash")
    assert attempt.exit_code == {"segfault": -signal.SIGSEGV, "system_exit": 7}[task]
    assert after.result() == 1


def test_the_first_crash_is_retried_at_once(stage: Stage) -> None:
    run = stage.submit("leave_once", code=3)  # its policy would make it wait for half a minute
    with stage.worker():
        assert stage.ended(run, within=20).result() == 2
    assert stage.client.attempts(run)[0].exit_code == 3


def test_run_that_always_crashes_fails_after_its_last_attempt_and_affects_no_other(stage: Stage) -> None:
    poison = stage.submit("leave", code=1, started=str(stage.file("started")))
    others = stage.client.submit_many("echo", [{"value": n} for n in range(50)])
    with stage.worker(slots=2):
        ended = stage.ended(poison)
        results = [stage.ended(run).result() for run in others]
    assert (ended.status, ended.attempt_count) == (Status.FAILED, 3)
    assert len(stage.said("started", 3)) == 3
    assert results == list(range(50))
    assert {run.attempt_count for run in map(stage.client.get, others)} == {1}


def test_endless_recursion_is_an_error_like_any_other(stage: Stage) -> None:
    run = stage.submit("deep")
    with stage.worker():
        ended = stage.ended(run)
    assert ended.error is not None
    assert ended.error["class"] == "RecursionError"


def test_processes_started_by_a_killed_child_are_killed_too(stage: Stage) -> None:
    run = stage.submit("with_child_process", started=str(stage.file("started")))
    with stage.worker():
        child, grandchild = map(int, stage.said("started")[0].split())
        os.kill(child, signal.SIGKILL)
        eventually(lambda: stage.client.get(run).attempt_count == 2)
        eventually(lambda: not alive([child, grandchild]))
        run.cancel()
        stage.ended(run)
    assert stage.attempts(run)[0] == (1, "FAILED", None, "crash")


def test_children_die_with_their_worker(stage: Stage) -> None:
    stage.submit("spin", started=str(stage.file("started")))
    worker = stage.start("--slots", "2")
    child = int(stage.said("started")[0])
    members = family(worker.pid)
    assert child in members
    worker.kill()
    worker.wait()
    eventually(lambda: not alive(members))


def test_a_killed_worker_loses_nothing(stage: Stage) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    first = stage.start()
    stage.said("started", 1)
    stage.start()
    kill_tree(first)
    stage.said("started", 2)
    stage.file("go").touch()
    ended = stage.ended(run)
    assert (ended.status, ended.attempt_count) == (Status.SUCCEEDED, 2)
    assert ended.result().startswith("attempt 2 ")
    assert stage.attempts(run) == [(1, "LOST", None, "lost"), (2, "SUCCEEDED", "SUCCEEDED", None)]


def test_suspended_worker_is_fenced_and_continues_with_a_new_id(stage: Stage) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    frozen = stage.start("--slots", "1")
    stage.said("started", 1)
    frozen_id = stage.worker_of(run)
    members = freeze(frozen)
    other = stage.start("--slots", "1")
    stage.said("started", 2)
    stage.file("go").touch()
    ended = stage.ended(run)
    thaw(members)
    eventually(lambda: "FENCED" in stage.event_types(run))
    assert ended.result().startswith("attempt 2 ")
    assert stage.client.get(run).status is Status.SUCCEEDED
    assert stage.event_types(run) == ["SUBMITTED", "CLAIMED", "LOST", "CLAIMED", "SUCCEEDED", "FENCED"]
    kill_tree(other)
    again = stage.submit("echo", value="still here")
    assert stage.ended(again).result() == "still here"
    # The submit may have handed the run to the worker that was killed a moment ago; then this is its second attempt.
    worker_id = stage.client.attempts(again)[-1].worker_id
    assert dict(stage.query("select id::text, pid from holdfast.workers"))[worker_id] == frozen.pid
    assert worker_id != frozen_id


def test_short_suspension_of_a_worker_loses_nothing(stage: Stage) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    worker = stage.start("--slots", "1")
    stage.said("started")
    thaw(freeze(worker))
    stage.file("go").touch()
    assert stage.ended(run).attempt_count == 1


def test_drained_worker_hands_back_runs_that_it_cannot_finish(stage: Stage) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    worker = stage.start("--slots", "1")
    stage.said("started", 1)
    worker.terminate()
    assert worker.wait(60) == 0
    assert stage.attempts(run) == [(1, "CANCELLED", None, "handed-back")]
    found = stage.client.get(run)
    assert (found.status, found.attempt_count) == (Status.PENDING, 1)
    stage.file("go").touch()
    stage.start()
    assert stage.ended(run).result().startswith("attempt 2 ")
    assert stage.query("select excused from holdfast.ready union all select excused from holdfast.leases") == []


def test_handed_back_run_uses_up_no_attempt(stage: Stage) -> None:
    run = stage.submit("fail", times=3)
    worker = WorkerInfo(new_id(), "host", 1, "leaving", "process", "0", 1, timedelta(seconds=60))
    with psycopg.connect(stage.url, autocommit=True) as connection:
        driver.run(connection, iter(workers.register(worker)))
        [claim] = driver.run(connection, ops.claim(worker.id, [Position("default")], ["fail"], 1))
        driver.run(connection, ops.finish(worker.id, [settle(claim, HandedBack(), 0.5)]))
    with stage.worker():
        assert stage.ended(run).result() == 4


def test_rescued_run_is_claimed_without_another_poll(stage: Stage) -> None:
    run = stage.submit("echo", value=1)
    dead = WorkerInfo(new_id(), "host", 1, "dead", "process", "0", 1, timedelta(seconds=60))
    with psycopg.connect(stage.url, autocommit=True) as connection:
        driver.run(connection, iter(workers.register(dead)))
        assert driver.run(connection, ops.claim(dead.id, [Position("default")], ["echo"], 1))
    with stage.worker(poll_every=1e6, poll_every_listening=1e6, listener=PollListener()):
        eventually(lambda: len(stage.query("select id from holdfast.workers")) == 2)
        stage.query("update holdfast.workers set heartbeat_at = now(), expires_at = now() where id = %s", dead.id)
        assert stage.ended(run).attempt_count == 2


def test_a_drained_worker_lets_runs_finish(stage: Stage) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    pending = stage.submit("echo", value=1)
    worker = stage.start("--slots", "1", grace_seconds=60)
    stage.said("started", 1)
    worker.terminate()
    stage.file("go").touch()
    assert worker.wait(30) == 0
    assert stage.client.get(run).status is Status.SUCCEEDED
    assert stage.client.get(pending).status is Status.PENDING


def test_a_second_signal_does_not_wait_for_the_grace(stage: Stage) -> None:
    run = stage.submit("hang", started=str(stage.file("started")))
    worker = stage.start("--slots", "1", grace_seconds=600, lease_seconds=1800, renew_seconds=1)
    stage.said("started", 1)
    worker.terminate()
    # Once the worker claims no more runs, it has seen the first signal; only then is the second one sent.
    other = stage.submit("echo")
    eventually(lambda: stage.client.get(other).status is Status.PENDING)
    worker.send_signal(signal.SIGINT)
    assert worker.wait(30) == 0
    assert stage.attempts(run) == [(1, "CANCELLED", None, "handed-back")]


def test_worker_can_be_drained_remotely(stage: Stage) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    worker = stage.start("--slots", "1", grace_seconds=60)
    stage.said("started", 1)
    assert stage.client.drain_worker(stage.worker_of(run))
    later = stage.submit("echo")
    stage.file("go").touch()
    assert worker.wait(30) == 0
    assert stage.client.get(run).status is Status.SUCCEEDED
    assert stage.client.get(later).status is Status.PENDING


def test_lost_connections_cause_only_a_short_delay(stage: Stage) -> None:
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    more = stage.client.submit_many("echo", [{"value": n} for n in range(100)])
    with stage.worker(slots=2):
        stage.said("started")
        for _ in range(5):
            stage.query(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and application_name like 'holdfast %%'"
            )
            stage.ended(stage.submit("echo", value=0))
        stage.file("go").touch()
        assert stage.ended(run).attempt_count == 1
        results = [stage.ended(one).result() for one in more]
    assert results == list(range(100))
    assert stage.query("select count(*) from holdfast.leases") == [(0,)]
    assert stage.query("select count(*) from holdfast.events where type = 'FENCED'") == [(0,)]


def test_lease_that_its_worker_does_not_know_is_returned(stage: Stage) -> None:
    """As after a claim that was committed but whose response was lost."""
    with stage.worker() as worker:
        stage.ended(stage.submit("echo"))
        with psycopg.connect(stage.url) as connection:
            run = stage.client.on(connection).submit("echo", {"value": 5})
            assert driver.run(connection, ops.claim_by_id(worker.id, run.id, ["echo"], 0.5))
        ended = stage.ended(stage.client.get(run.id))
    assert ended.result() == 5
    assert stage.attempts(ended) == [(1, "SUCCEEDED", "SUCCEEDED", None)]


def test_worker_without_a_database_reports_it(stage: Stage) -> None:
    with Runtime(stage.settings) as runtime:
        options = replace(worker_options(runtime, WorkerRequest()), database_url="postgresql://127.0.0.1:1/x")
        with pytest.raises(DatabaseUnreachable, match="does not respond"):
            asyncio.run(Worker(options).serve())
