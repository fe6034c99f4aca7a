"""An upgrade of the database while workers of the previous release use it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.jobs_support import disagreements
from tests.integration.worker_support import eventually
from tests.upgrade.releases import Release

WITHIN = 120.0


class Fleet:
    """The notes of the clients, and the corresponding rows in the database."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory

    def load(self, release: Release) -> subprocess.Popen[bytes]:
        notes, stop = f"{release.name}.notes", str(self.directory / "stop")
        return release.start(self.url, self.directory, "tests.upgrade.load", str(self.directory / notes), stop)

    def worker(self, release: Release) -> subprocess.Popen[bytes]:
        # No worker dies in these tests, and on a busy machine none may lose its lease either.
        lease = {"lease_seconds": 60, "renew_seconds": 5}
        return release.start(self.url, self.directory, "holdfast", "worker", "--slots", "3", **lease)

    def noted(self, release: Release, kind: str) -> list[str]:
        path = self.directory / f"{release.name}.notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(kind)]

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(sql, parameters).fetchall()  # type: ignore[arg-type]

    def ended(self) -> int:
        return int(self.query("select count(*) from holdfast.attempts where outcome is not null")[0][0])

    def let_pass(self, release: Release, runs: int = 60) -> None:
        """Wait until clients of this release have submitted this many more runs, and as many have ended."""
        submitted, ended = len(self.noted(release, "run")) + runs, self.ended() + runs
        eventually(lambda: len(self.noted(release, "run")) >= submitted and self.ended() >= ended, WITHIN)


@pytest.mark.timeout(600)
def test_upgrade_under_load_loses_and_duplicates_no_run(
    landed_url: str, before: Release, after: Release, tmp_path: Path
) -> None:
    fleet = Fleet(landed_url, tmp_path)
    old_workers = [fleet.worker(before), fleet.worker(before)]
    loads = [fleet.load(before)]
    fleet.let_pass(before)

    done = after.call(landed_url, tmp_path, "holdfast", "db", "upgrade")
    assert done.returncode == 0, done
    assert f"at schema {after.schema}; it was at schema {before.schema}" in done.stderr
    fleet.let_pass(before)

    fleet.worker(after)
    loads.append(fleet.load(after))
    fleet.let_pass(after)
    old_workers[0].send_signal(signal.SIGTERM)
    assert old_workers[0].wait(60) == 0
    fleet.let_pass(before)

    (tmp_path / "stop").touch()
    assert [load.wait(60) for load in loads] == [0, 0]
    eventually(
        lambda: not fleet.query("select from holdfast.run_status where status in ('PENDING', 'RUNNING')"), WITHIN
    )
    eventually(lambda: not fleet.query("select from holdfast.jobs where finished_at is null"), WITHIN)
    judge(fleet, before, after)


def judge(fleet: Fleet, *releases: Release) -> None:
    for release in releases:
        assert fleet.noted(release, "error") == []
    runs = {run for release in releases for run in fleet.noted(release, "run")}
    jobs = {job for release in releases for job in fleet.noted(release, "job")}
    assert len(runs) > 200
    assert len(jobs) > 20
    outcomes = fleet.query("select id::text, status from holdfast.run_status where job_id is null")
    assert {status for _, status in outcomes} == {"SUCCEEDED"}
    assert {run for run, _ in outcomes} == runs
    ended = fleet.query("select id::text, outcome from holdfast.jobs")
    assert {outcome for _, outcome in ended} == {"SUCCEEDED"}
    assert {job for job, _ in ended} == jobs
    effects = fleet.query("select run_id::text from effects order by 1")
    assert effects == fleet.query("select id::text from holdfast.runs where task = 'fleet.work' order by id::text")
    assert fleet.query("select from holdfast.attempts where status = 'LOST'") == []
    with psycopg.connect(fleet.url) as connection:
        assert disagreements(connection) == []
    for log in fleet.directory.glob("*.log"):
        assert "Traceback" not in log.read_text(), log.read_text()
        assert '"level": "error"' not in log.read_text(), log.read_text()


@pytest.mark.timeout(300)
def test_open_transaction_delays_the_upgrade_and_not_the_clients(
    landed_url: str, before: Release, after: Release, tmp_path: Path
) -> None:
    fleet = Fleet(landed_url, tmp_path)
    fleet.worker(before)
    load = fleet.load(before)
    fleet.let_pass(before, 20)
    with psycopg.connect(landed_url) as holder:
        holder.execute("lock table holdfast.leases, holdfast.attempts, holdfast.runs in access share mode")
        upgrade = after.start(landed_url, tmp_path, "holdfast", "db", "upgrade")
        log = tmp_path / f"{after.name}-0.log"
        eventually(lambda: log.read_text().count("other sessions are using tables") >= 2, WITHIN)
        fleet.let_pass(before, 5)
        assert upgrade.poll() is None
    assert upgrade.wait(120) == 0, log.read_text()
    fleet.let_pass(before, 20)
    (tmp_path / "stop").touch()
    assert load.wait(60) == 0
    assert fleet.noted(before, "error") == []
