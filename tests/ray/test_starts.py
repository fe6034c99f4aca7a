"""Entrypoints that start twice, late, or after their attempt was lost do not get a lease that another process has."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg

from holdfast import ops
from holdfast.domain.ids import new_id
from holdfast.domain.values import AttemptRef, Claim, Position, WorkerInfo
from holdfast.drivers import psycopg as driver
from holdfast.drivers.psycopg import OwnConnection
from holdfast.drivers.sessions import CLIENT
from holdfast.sql import workers
from tests.ray.head import outer_environment
from tests.timeline import new_run

RUNS, STARTS, THREADS = 20, 10, 6


def register(connection: OwnConnection) -> str:
    worker = WorkerInfo(new_id(), "host", 1, "job", "ray_job", "0", 1, timedelta(minutes=5))
    driver.run(connection, iter(workers.register(worker)))
    return worker.id


def test_at_most_one_start_of_each_attempt_is_admitted_and_the_others_are_recorded(database_url: str) -> None:
    with OwnConnection.connect(database_url, session=CLIENT) as connection:
        for number in range(RUNS):
            driver.run(connection, ops.submit(new_run({"n": number})))
        claimant = register(connection)
        claims = driver.run(connection, ops.claim(claimant, [Position("default")], ["work"], RUNS))
        lost, cancelled = claims[:4], claims[4:8]
        for claim in cancelled:
            driver.run(connection, ops.cancel(claim.run_id, "no longer needed"))
        _lose(connection, lost)

    def start(ref: AttemptRef) -> tuple[AttemptRef, Claim | None]:
        with OwnConnection.connect(database_url, session=CLIENT) as own:
            return ref, driver.run(own, ops.take_over(register(own), ref, claimant, executor="ray_job"))

    refs = [claim.ref for _ in range(STARTS) for claim in claims]
    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(start, refs))
    assert len(answers) == RUNS * STARTS
    admitted = Counter(ref for ref, claim in answers if claim is not None)
    assert admitted == {claim.ref: 1 for claim in claims[8:]}
    with psycopg.connect(database_url) as reading:
        recorded = reading.execute("select count(*) from holdfast.events where type = 'FENCED'").fetchone()
        counted = reading.execute("select sum(amount) from holdfast.tallies where kind = 'fenced'").fetchone()
    assert recorded == counted == (len(answers) - len(admitted),)


def test_job_that_cannot_load_its_tasks_leaves_the_run_alone(database_url: str) -> None:
    with OwnConnection.connect(database_url, session=CLIENT) as connection:
        driver.run(connection, ops.submit(new_run({})))
        claimant = register(connection)
        (claim,) = driver.run(connection, ops.claim(claimant, [Position("default")], ["work"], 1))
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast.rayjob", claim.run_id, str(claim.number), claimant],
        env={**outer_environment(), "HOLDFAST_DATABASE_URL": database_url, "HOLDFAST_TASKS": "no_such_module"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "the tasks of module 'no_such_module' cannot be loaded" in ended.stderr
    with psycopg.connect(database_url) as reading:
        held = reading.execute("select worker_id::text from holdfast.leases").fetchall()
        known = reading.execute("select id::text from holdfast.workers").fetchall()
    assert held == known == [(claimant,)]


def _lose(connection: OwnConnection, claims: list[Claim]) -> None:
    """End these attempts like those of a dead worker, while their worker stays alive for the others."""
    taker = register(connection)
    for claim in claims:
        holder = connection.execute("select worker_id::text from holdfast.leases where run_id = %s", [claim.run_id])
        first = holder.fetchone()
        assert first is not None
        driver.run(connection, ops.take_over(taker, claim.ref, first[0]))
    driver.run(connection, ops.deregister_worker(taker))
    found = driver.run(connection, ops.find_orphans(100))
    assert {orphan.run_id for orphan in found} == {claim.run_id for claim in claims}
    driver.run(connection, ops.rescue(found, 0.5))


def test_start_of_a_ray_job_imports_only_what_short_runs_need() -> None:
    code = (
        "import sys, holdfast.rayjob.__main__, holdfast.rayjob.execution, holdfast.tasks;"
        "unused = {'annotated_types', 'pydantic', 'ray', 'holdfast.verbs', 'holdfast.http', 'alembic', 'numpy'};"
        "sys.exit(', '.join(sorted(unused & sys.modules.keys())) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
