"""Rows locked by another transaction: blocked results, late starts of jobs, and missing tasks of ready runs."""

from __future__ import annotations

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.canonical import canonicalize
from holdfast.domain.ids import derived_id, new_id
from holdfast.domain.jobs import NewJob, NewMap, Slice
from holdfast.domain.values import Claim, Dependency
from holdfast.sql import jobs, locks, ready
from holdfast.sql.locks import Blocked
from holdfast.sql.statement import Op
from tests.timeline import Timeline, new_run

LOCKS = {
    "lease": "select from holdfast.leases where run_id = %(run)s for key share",
    "job": "select from holdfast.jobs where id = %(job)s for key share",
    "map": "select from holdfast.maps where id = %(map)s for key share",
    "dependent": "select from holdfast.waiting where run_id = %(dependent)s for key share",
    "dependent of the map": "select from holdfast.waiting where run_id = %(join)s for key share",
}


class Scene:
    """A job with a map of two claimed runs, a run that waits for the first of them, and a run that waits for the map;
    and a claimed run without a job."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.job = new_id()
        self.map = derived_id(self.job, "map")
        timeline.perform(lambda: ops.create_job(NewJob(self.job, "job"), []))
        head = new_run(id=derived_id(self.job, "head"), job_id=self.job, map_id=self.map)
        slices = [Slice(*canonicalize({"n": n})) for n in range(2)]
        new = NewMap(self.map, self.job, None, "{}", 2)
        timeline.perform(lambda: ops.add_map(new, head, lambda _: slices, None, None))
        self.alone = timeline.submit({"alone": True})
        claims = timeline.worker("a").claim(3)
        self.claims = {claim.run_id: claim for claim in claims}
        self.run, self.sibling = (claim.run_id for claim in claims if claim.job_id is not None)
        self.dependent = timeline.submit({"waits": 1}, depends_on=(Dependency(self.run),))
        self.join = timeline.submit({"waits": 2}, depends_on=(Dependency(self.map),))

    def names(self) -> dict[str, str]:
        return {
            "run": self.run,
            "job": self.job,
            "map": self.map,
            "dependent": self.dependent,
            "join": self.join,
        }

    def blocked(self) -> set[Blocked]:
        def find() -> Op[list[Blocked]]:
            yield from locks.wait_briefly()  # so that waiting for a lock is an error
            return (yield from ops.find_blocked([self.run, self.sibling, self.alone]))

        return set(self.timeline.perform(find))

    def claim(self, run: str) -> Claim:
        return self.claims[run]


def test_no_run_is_blocked_without_locks(timeline: Timeline) -> None:
    assert Scene(timeline).blocked() == set()


@pytest.mark.parametrize("what", LOCKS)
def test_blocked_run_is_found_without_waiting(timeline: Timeline, connection: psycopg.Connection, what: str) -> None:
    scene = Scene(timeline)
    one, other = (Blocked(run, scene.job, False) for run in (scene.run, scene.sibling))
    with_job = {one._replace(with_job=True), other._replace(with_job=True)}
    expected = {
        "lease": {one},
        "job": with_job,
        "map": with_job,
        "dependent": {one},
        "dependent of the map": {one, other},
    }
    with connection.transaction():
        connection.execute(LOCKS[what], scene.names())
        assert scene.blocked() == expected[what]
    assert scene.blocked() == set()


@pytest.mark.every_driver
def test_run_without_a_lease_is_not_reported_as_blocked(timeline: Timeline, connection: psycopg.Connection) -> None:
    scene = Scene(timeline)
    timeline.worker("a").succeeds(scene.claim(scene.run))
    with connection.transaction():
        connection.execute(LOCKS["job"], scene.names())
        assert {found.run_id for found in scene.blocked()} == {scene.sibling}


def pending_job(timeline: Timeline) -> tuple[str, list[str]]:
    """Return a job with two runs of which none has been claimed."""
    job_id = new_id()
    runs = [new_run({"n": n}, id=derived_id(job_id, str(n)), job_id=job_id) for n in range(2)]
    timeline.perform(lambda: ops.create_job(NewJob(job_id, "job"), []))
    timeline.perform(lambda: ops.add_tasks(runs, None))
    return job_id, [run.id for run in runs]


def notes(connection: psycopg.Connection) -> int:
    found = connection.execute("select count(*) from holdfast.late_starts").fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.every_driver
def test_job_locked_during_its_first_claim_starts_at_the_time_of_that_claim(
    timeline: Timeline, connection: psycopg.Connection
) -> None:
    job_id, _ = pending_job(timeline)
    with connection.transaction():
        connection.execute("select from holdfast.jobs where id = %s for update", [job_id])
        (claim,) = timeline.worker("a").claim(1)
        assert timeline.ask(jobs.start_late(10)) == 0
        assert timeline.ask(jobs.start_late(10)) == 0
    claimed_at = timeline.get(claim.run_id).started_at
    timeline.later(seconds=30)
    assert notes(connection) == 1
    assert timeline.ask(jobs.start_late(10)) == 1
    job = timeline.perform(lambda: ops.get_job(job_id))
    assert job.started_at == claimed_at
    assert notes(connection) == 0


def test_late_start_does_not_change_a_started_job(timeline: Timeline, connection: psycopg.Connection) -> None:
    job_id, _ = pending_job(timeline)
    timeline.worker("a").claim(1)
    started_at = timeline.perform(lambda: ops.get_job(job_id)).started_at
    connection.execute("insert into holdfast.late_starts values (%s, holdfast.now() - interval '1 hour')", [job_id])
    assert timeline.ask(jobs.start_late(10)) == 1
    assert timeline.perform(lambda: ops.get_job(job_id)).started_at == started_at


def test_late_start_of_a_deleted_job_is_removed(timeline: Timeline, connection: psycopg.Connection) -> None:
    connection.execute("insert into holdfast.late_starts values (gen_random_uuid(), holdfast.now())")
    assert timeline.ask(jobs.start_late(10)) == 1
    assert notes(connection) == 0


def test_late_start_skips_a_locked_job(timeline: Timeline, connection: psycopg.Connection) -> None:
    locked, free = pending_job(timeline)[0], pending_job(timeline)[0]
    with connection.transaction():
        connection.execute("select from holdfast.jobs for update")
        timeline.worker("a").claim(4)
    with connection.transaction():
        connection.execute("select from holdfast.jobs where id = %s for update", [locked])
        assert timeline.ask(jobs.start_late(10)) == 1
        assert timeline.perform(lambda: ops.get_job(free)).started_at is not None
        assert timeline.perform(lambda: ops.get_job(locked)).started_at is None
    assert notes(connection) == 1


def unname(connection: psycopg.Connection) -> None:
    """Change ready runs to the form that the previous version wrote."""
    with connection.transaction():
        connection.execute("set local session_replication_role = replica")
        connection.execute("update holdfast.ready set task = ''")


@pytest.mark.every_driver
def test_adding_the_task_to_a_ready_run_keeps_its_other_columns(
    timeline: Timeline, connection: psycopg.Connection
) -> None:
    scene = Scene(timeline)
    timeline.worker("a").hands_back(scene.claim(scene.run))
    timeline.submit({"urgent": True}, priority=7, queue="other")
    # The previous version counted its runs when it created them.
    columns = "select to_jsonb(ready) - 'counted' from holdfast.ready order by run_id"
    before = connection.execute(columns).fetchall()
    unname(connection)
    assert timeline.worker("a").claim(10) == []
    assert timeline.ask(ready.name_tasks(10)) == 2
    assert connection.execute(columns).fetchall() == before
    assert [claim.run_id for claim in timeline.worker("a").claim(10)] == [scene.run]


def test_adding_the_task_to_ready_runs_skips_a_locked_run(timeline: Timeline, connection: psycopg.Connection) -> None:
    locked, free = timeline.submit({"n": 1}), timeline.submit({"n": 2})
    unname(connection)
    with connection.transaction():
        connection.execute("select from holdfast.ready where run_id = %s for key share", [locked])
        assert timeline.ask(ready.name_tasks(10)) == 1
        timeline.worker("a").claims(free)
    assert timeline.ask(ready.name_tasks(10)) == 1
    timeline.worker("a").claims(locked)


@pytest.mark.every_driver
def test_released_run_keeps_priority_excused_attempts_and_job(timeline: Timeline) -> None:
    job_id = new_id()
    run = new_run({}, id=derived_id(job_id, "run"), job_id=job_id, priority=5)
    timeline.perform(lambda: ops.create_job(NewJob(job_id, "job"), [run]))
    worker = timeline.worker("a")
    worker.hands_back(worker.claims(run.id))
    claim = worker.claims(run.id)
    worker.releases(claim)
    again = worker.claims(run.id)
    assert (again.number, again.excused, again.ord, again.job_id) == (2, 1, -5, job_id)
    worker.succeeds(again)
    assert timeline.perform(lambda: ops.get_job(job_id)).status == "SUCCEEDED"
