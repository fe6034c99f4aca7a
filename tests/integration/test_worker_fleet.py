"""Workers with different tasks share a queue: each claims only what it can run, and nothing is handed back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import tests.integration.job_tasks
import tests.integration.worker_tasks
from holdfast import ops
from holdfast.domain.ids import derived_id, new_id
from holdfast.domain.jobs import NewJob
from holdfast.domain.states import Status
from holdfast.domain.values import Position, WorkerInfo
from holdfast.drivers import psycopg as driver
from holdfast.sql import figures, jobs, ready, workers
from tests.integration.worker_support import Stage, eventually
from tests.timeline import LEASE, new_run


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path)
    yield stage
    stage.close()


def test_two_workers_with_disjoint_tasks_hand_nothing_back(stage: Stage) -> None:
    runs = []
    for number in range(30):
        runs.append(stage.submit("echo", value=number))
        runs.append(stage.submit("job.note", path=str(stage.file("notes")), text=number))
    for module in (tests.integration.worker_tasks, tests.integration.job_tasks):
        stage.start("--slots", "2", tasks=module.__name__)
    ended = [stage.ended(run) for run in runs]
    assert {(run.status, run.attempt_count) for run in ended} == {(Status.SUCCEEDED, 1)}
    assert stage.query("select status, count(*) from holdfast.attempts group by status") == [("SUCCEEDED", 60)]


def test_worker_without_the_executor_of_a_task_leaves_its_runs_to_others(stage: Stage) -> None:
    left = stage.submit("process_echo", value=1)
    with stage.worker("inline"):
        assert stage.ended(stage.submit("echo", value=2)).status is Status.SUCCEEDED
        assert [reason.code for reason in stage.client.why(left)] == ["no-worker-for-executor"]
    with stage.worker("inline", until_empty=True):
        pass
    assert stage.attempts(left) == []
    with stage.worker("process"):
        assert stage.ended(left).result() == 1


def test_claims_without_a_free_slot_leave_no_attempt(stage: Stage) -> None:
    """Short runs make a worker claim ahead; a long one among them sends the others back."""
    for number in range(200):
        stage.submit("echo", value=number)
    long = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    later = [stage.submit("echo", value=number) for number in range(50)]
    with stage.worker(slots=1):
        stage.said("started")
        with stage.worker(slots=1):
            assert [stage.ended(run).attempt_count for run in later] == [1] * 50
        stage.file("go").touch()
        stage.ended(long)
    assert stage.query("select count(*) from holdfast.attempts where status <> 'SUCCEEDED'") == [(0,)]


def test_runs_that_no_worker_can_run_are_reported(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for task in ("known", "foreign", "foreign"):
            driver.transact(connection, lambda task=task: ops.submit(new_run(task=task)))  # type: ignore[misc]
        assert driver.transact(connection, lambda: iter(figures.unclaimable())) == []
        info = WorkerInfo(new_id(), "host", 1, "w", "inline", "0", 1, LEASE, tasks=("known",))
        driver.transact(connection, lambda: iter(workers.register(info)))
        (found,) = driver.transact(connection, lambda: iter(figures.unclaimable()))
    assert (found.queue, found.task, found.ready) == ("default", "foreign", 2)


def test_a_ready_run_that_the_previous_version_added_is_claimed(stage: Stage) -> None:
    """Code of the previous version does not write the task of a ready run; upkeep fills it in."""
    run = stage.submit("echo", value=4)
    with psycopg.connect(stage.url, autocommit=True) as connection:
        connection.execute("alter table holdfast.ready disable trigger user")
        connection.execute("update holdfast.ready set task = ''")
        connection.execute("alter table holdfast.ready enable trigger user")
    with stage.worker():
        assert stage.ended(run).result() == 4


def test_adding_tasks_to_ready_runs_changes_nothing_else(stage: Stage) -> None:
    stage.submit("echo", value=4)
    # The previous version counted its runs when it created them.
    columns = "select to_jsonb(ready) - 'counted' from holdfast.ready"
    with psycopg.connect(stage.url, autocommit=True) as connection:
        before = connection.execute(columns).fetchall()
        connection.execute("alter table holdfast.ready disable trigger user")
        connection.execute("update holdfast.ready set task = ''")
        connection.execute("alter table holdfast.ready enable trigger user")
        assert driver.transact(connection, lambda: iter(ready.name_tasks(10))) == 1
        assert connection.execute(columns).fetchall() == before


def test_a_job_that_could_not_be_started_with_its_first_claim_is_started_later(stage: Stage) -> None:
    info = WorkerInfo(new_id(), "host", 1, "w", "inline", "0", 1, LEASE)
    with psycopg.connect(stage.url, autocommit=True) as connection, psycopg.connect(stage.url) as user:
        driver.transact(connection, lambda: iter(workers.register(info)))
        job_id = new_id()
        driver.transact(connection, lambda: ops.create_job(NewJob(job_id, "job"), []))
        task = new_run(id=derived_id(job_id, "first"), job_id=job_id)
        driver.transact(connection, lambda: ops.add_tasks([task], None))
        user.execute("select from holdfast.jobs for update")
        assert driver.transact(connection, lambda: ops.claim(info.id, [Position("default")], ["work"], 1))
        assert driver.transact(connection, lambda: iter(jobs.start_late(10))) == 0
        user.commit()
        assert driver.transact(connection, lambda: iter(jobs.start_late(10))) == 1
        assert eventually(lambda: stage.query("select started_at is not null from holdfast.jobs")) == [(True,)]
        assert stage.query("select count(*) from holdfast.late_starts") == [(0,)]
