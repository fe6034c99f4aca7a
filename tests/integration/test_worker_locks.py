"""Workers and users' transactions: rows that these have locked delay nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.ids import derived_id, new_id, series
from holdfast.domain.jobs import NewJob
from holdfast.domain.states import Status
from holdfast.domain.values import AttemptRef, NewRun
from holdfast.drivers import psycopg as driver
from holdfast.observe import subscribe
from holdfast.ops.create import FIRST_TASKS
from holdfast.sql import leases
from holdfast.sql.statement import Op
from holdfast.worker.result_writer import ResultWriter
from holdfast.worker.round_trips import Answer, ExchangeRequest, exchange
from tests.integration.worker_support import DEADLINE, Stage, eventually
from tests.timeline import new_run


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def user(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection of an application, in whose transaction locks are held until it commits."""
    with psycopg.connect(database_url) as connection:
        yield connection


def make_job(stage: Stage, *parameters: dict[str, object], task: str = "echo") -> tuple[str, list[str]]:
    job_id = new_id()
    ids = series(job_id, FIRST_TASKS, len(parameters), first=True)
    tasks = [new_run(given, id=id_, task=task, job_id=job_id) for id_, given in zip(ids, parameters, strict=True)]
    with psycopg.connect(stage.url, autocommit=True) as connection:
        driver.transact(connection, lambda: ops.create_job(NewJob(job_id, "job"), tasks))
    return job_id, ids


def add_task(job_id: str) -> NewRun:
    return new_run({}, id=derived_id(job_id, "added"), task="echo", job_id=job_id)


def statuses(stage: Stage, ids: list[str]) -> list[Status]:
    return [stage.client.get(id_).status for id_ in ids]


def test_a_claim_does_not_wait_for_a_locked_job(stage: Stage, user: psycopg.Connection) -> None:
    gate = stage.file("gate")
    job_id, (held,) = make_job(stage, {"started": str(stage.file("started")), "until": str(gate)}, task="patient")
    driver.run(user, ops.add_tasks([add_task(job_id)], None))
    with stage.worker(slots=2):
        stage.said("started")
        assert [stage.ended(stage.submit("echo", value=n)).result() for n in range(5)] == list(range(5))
        user.commit()
        job = eventually(lambda: (found := stage.query("select started_at from holdfast.jobs"))[0][0] and found)
        assert job
        gate.touch()
        eventually(lambda: stage.query("select outcome from holdfast.jobs") == [("SUCCEEDED",)])
    assert stage.client.get(held).attempt_count == 1


def test_only_the_result_that_needs_a_locked_job_is_deferred(stage: Stage, user: psycopg.Connection) -> None:
    started, gate = stage.file("started"), stage.file("gate")
    job_id, ids = make_job(stage, *[{"started": str(started), "until": str(gate)}] * 3, task="patient")
    with stage.worker(slots=3):
        stage.said("started", 3)
        driver.run(user, ops.add_tasks([add_task(job_id)], None))
        gate.touch()
        assert [stage.ended(stage.submit("echo", value=n)).result() for n in range(10)] == list(range(10))
        assert statuses(stage, ids) == [Status.RUNNING] * 3
        waiting = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
        eventually(lambda: stage.query(waiting) == [(0,)])
        user.commit()
        eventually(lambda: statuses(stage, ids) == [Status.SUCCEEDED] * 3)
        eventually(lambda: stage.query("select outcome, succeeded from holdfast.jobs") == [("SUCCEEDED", 4)])
    assert {stage.client.get(id_).attempt_count for id_ in ids} == {1}


def test_only_the_result_with_a_locked_dependent_is_deferred(stage: Stage, user: psycopg.Connection) -> None:
    started, gate = stage.file("started"), stage.file("gate")
    run = stage.submit("patient", started=str(started), until=str(gate))
    with stage.worker():
        stage.said("started")
        dependent = stage.client.on(user).submit("echo", {"value": 7}, depends_on=[run.id])
        gate.touch()
        assert [stage.ended(stage.submit("echo", value=n)).result() for n in range(10)] == list(range(10))
        assert stage.client.get(run).status is Status.RUNNING
        user.commit()
        assert stage.ended(run).attempt_count == 1
        assert stage.ended(stage.client.get(dependent.id)).result() == 7


def test_a_worker_that_stops_while_its_job_is_locked_leaves_the_run_to_other_workers(
    stage: Stage, user: psycopg.Connection
) -> None:
    job_id, (held,) = make_job(stage, {"value": 3})
    driver.run(user, ops.add_tasks([add_task(job_id)], None))
    with stage.worker() as worker:
        eventually(lambda: stage.client.get(held).status is Status.RUNNING)
        eventually(lambda: worker._exchange.pending.deferred.locked)
    user.commit()
    with stage.worker():
        assert stage.ended(stage.client.get(held)).result() == 3
    # The run was executed: although its result could not be written, it must not count as never started.
    assert [(number, status) for number, status, *_ in stage.attempts(stage.client.get(held))] == [
        (1, "LOST"),
        (2, "SUCCEEDED"),
    ]


def test_run_that_never_started_does_not_fail(stage: Stage, user: psycopg.Connection) -> None:
    """A worker that stops during a claim must not leave a lease behind that uses up the only attempt."""
    runs = [stage.client.submit("only_attempt", {"marks": str(stage.file("marks"))}, dedupe="off") for _ in range(3)]
    user.execute("lock table holdfast.leases in exclusive mode")
    with stage.worker():
        waiting = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
        eventually(lambda: stage.query(waiting) != [(0,)])
    user.commit()
    with stage.worker():
        ended = [stage.ended(run) for run in runs]
    assert [(run.status, run.attempt_count) for run in ended] == [(Status.SUCCEEDED, 1)] * 3
    assert len(stage.said("marks", 3)) == 3


def test_worker_that_starts_while_a_user_has_locked_the_workers_registers_later(
    stage: Stage, user: psycopg.Connection
) -> None:
    """A lock delays the start of a worker, and does not end it with an error."""
    run = stage.submit("echo", value=1)
    refused = threading.Event()
    stop = subscribe(lambda event, fields: refused.set() if event == "registration.refused" else None)
    user.execute("lock table holdfast.workers in access exclusive mode")
    with stage.worker("inline"):
        assert refused.wait(DEADLINE)
        user.commit()
        assert stage.ended(run).result() == 1
    stop()


def test_a_rescue_does_not_wait_for_locks_of_a_user(stage: Stage, user: psycopg.Connection) -> None:
    started, gate = stage.file("started"), stage.file("gate")
    held, free = (stage.submit("patient", started=str(started), until=str(gate)) for _ in range(2))
    process = stage.start("--slots", "2")
    stage.said("started", 2)
    stage.client.on(user).submit("echo", {}, depends_on=[held.id])
    process.kill()
    gate.touch()
    with stage.worker():
        assert stage.ended(free).attempt_count == 2
        assert stage.client.get(held).status is Status.RUNNING
        user.commit()
        assert stage.ended(held).attempt_count == 2


def depend_in_a_chain(stage: Stage, on: str) -> str:
    """Submit a run that waits for `on`, and one that waits for that run. Return the id of the second."""
    first = stage.client.submit("echo", {"value": "first"}, depends_on=[on])
    return stage.client.submit("echo", {"value": "second"}, depends_on=[first.id]).id


def test_failure_with_a_locked_indirect_dependent_does_not_delay_its_batch(
    stage: Stage, user: psycopg.Connection
) -> None:
    failing = stage.submit("failing_meeting", room="locked", others=6)
    stage.client.on(user).submit("echo", {}, depends_on=[depend_in_a_chain(stage, failing.id)])
    with stage.worker("inline", slots=10):
        others = [stage.client.submit("meeting", {"room": "locked", "others": 6}, dedupe="off") for _ in range(5)]
        assert [stage.ended(run).result() for run in others] == [6] * 5
        assert stage.client.get(failing).status is Status.RUNNING
        user.commit()
        assert stage.ended(failing).status is Status.FAILED
    assert stage.client.get(failing).attempt_count == 1


def test_rescue_with_a_locked_indirect_dependent_does_not_delay_other_rescues(
    stage: Stage, user: psycopg.Connection
) -> None:
    started, gate = stage.file("started"), stage.file("gate")
    held = stage.submit("hang_at_the_only_attempt", started=str(started))
    free = [stage.submit("patient", started=str(started), until=str(gate), report=n % 2 == 0) for n in range(2)]
    distant = depend_in_a_chain(stage, held.id)
    process = stage.start("--slots", "3")
    stage.said("started", 3)
    stage.client.on(user).submit("echo", {}, depends_on=[distant])
    process.kill()
    gate.touch()
    with stage.worker():
        assert [stage.ended(run).attempt_count for run in free] == [2, 2]
        assert stage.client.get(held).status is Status.RUNNING
        user.commit()
        assert stage.ended(held).status is Status.FAILED


def test_log_lines_of_a_batch_that_met_a_lock_are_kept(stage: Stage, user: psycopg.Connection) -> None:
    gate = stage.file("gate")
    job_id, ids = make_job(stage, *[{"value": n, "until": str(gate)} for n in range(4)], task="talks")
    with stage.worker(slots=5):
        # For the next half second, lines are sent together with results.
        stage.ended(stage.submit("talks", value=4))
        driver.run(user, ops.add_tasks([add_task(job_id)], None))
        gate.touch()
        eventually(lambda: stage.query("select count(*) from holdfast.logs") == [(5,)])
        user.commit()
        eventually(lambda: statuses(stage, ids) == [Status.SUCCEEDED] * 4)
    assert [stage.client.get(id_).progress for id_ in ids] == [{"done": 1, "total": 1}] * 4


def test_progress_of_a_run_with_a_locked_lease_is_written_later_without_waiting(
    stage: Stage, user: psycopg.Connection
) -> None:
    started, gate = stage.file("started"), stage.file("gate")
    runs = [stage.submit("patient", started=str(started), until=str(gate), report=n == 0) for n in range(2)]
    with stage.worker(slots=2):
        stage.said("started", 2)
        worker_id = stage.worker_of(runs[0])
        user.execute("select from holdfast.leases where run_id = %s for update", [runs[1].id])
        with psycopg.connect(stage.url, autocommit=True, options="-c lock_timeout=10ms") as another:
            refs = [stage.client.attempts(run)[0] for run in runs]
            reports = [(AttemptRef(run.id, ref.number), '{"done": 7}') for run, ref in zip(runs, refs, strict=True)]
            assert driver.run(another, iter(leases.progress(worker_id, reports))) == [reports[0][0]]
        user.commit()
        gate.touch()
        assert [stage.ended(run).attempt_count for run in runs] == [1, 1]


def test_results_with_the_same_locked_dependent_are_deferred_without_waiting_again(
    stage: Stage, user: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = []
    around = ResultWriter.write_around_locks
    monkeypatch.setattr(
        ResultWriter, "write_around_locks", lambda self, given: (met.append(len(given)), around(self, given))[1]
    )
    gates = [stage.file(f"gate {n}") for n in range(6)]
    runs = [stage.submit("moody", value=n, until=str(gate)) for n, gate in enumerate(gates)]
    dependent = stage.client.submit("echo", {"value": "last"}, depends_on=[run.id for run in runs])
    user.execute("select from holdfast.waiting where run_id = %s for update", [dependent.id])
    with stage.worker(slots=7):
        for n, gate in enumerate(gates):
            gate.touch()
            assert stage.ended(stage.submit("echo", value=n)).result() == n
        user.commit()
        assert stage.ended(dependent).result() == "last"
    assert len(met) <= 2


def test_results_are_written_with_a_short_lock_timeout_while_another_result_is_blocked(
    stage: Stage, user: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bool] = []

    def record(request: ExchangeRequest) -> Op[Answer]:
        if request.settlements:
            sent.append(request.briefly)
        return exchange(request)

    monkeypatch.setattr("holdfast.worker.exchange.exchange", record)
    gate = stage.file("gate")
    run = stage.submit("moody", value=1, until=str(gate))
    with stage.worker() as worker:
        stage.worker_of(run)
        user.execute("select from holdfast.leases where run_id = %s for update", [run.id])
        gate.touch()
        eventually(lambda: worker._exchange.pending.deferred.locked)
        assert stage.ended(stage.submit("echo")).status is Status.SUCCEEDED
        assert sent[-1]
        user.commit()
        assert stage.ended(run).attempt_count == 1


def test_worker_that_cannot_renew_loses_only_the_run_it_was_performing(
    database_url: str, tmp_path: Path, user: psycopg.Connection
) -> None:
    """It stops before its lease expires. Runs that wait for its child have not begun, and results are not lost."""
    stage = Stage(database_url, tmp_path, lease_seconds=1.5, renew_seconds=0.3)
    try:
        stage.client.submit_many("short_only_attempt", [{"marks": str(stage.file("marks"))}] * 1000, dedupe="off")
        with stage.worker(slots=1):
            stage.said("marks", 50)
            user.execute("select from holdfast.workers for update")
            eventually(lambda: stage.query("select count(*) > 1 from holdfast.workers") == [(True,)])
            user.commit()
            open_runs = "select (select count(*) from holdfast.ready) + (select count(*) from holdfast.leases)"
            eventually(lambda: stage.query(open_runs) == [(0,)], 2 * DEADLINE)
        ends = dict(stage.query("select outcome, count(*) from holdfast.attempts group by outcome"))
        # On a machine that is too slow for such a short lease, the worker may lose more than one session.
        ((sessions,),) = stage.query("select count(*) from holdfast.workers")
        failed = ends.pop("FAILED", 0)
        assert failed < sessions
        assert ends == {"SUCCEEDED": 1000 - failed}
    finally:
        stage.close()
