"""Runs begun by one release are finished by the other: before and after the upgrade, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.jobs_support import disagreements
from tests.integration.worker_support import eventually, kill_tree
from tests.upgrade.releases import Release

WITHIN = 90.0


class Records:
    """The database's record of a set of runs and jobs."""

    def __init__(self, url: str, ids: dict[str, str]) -> None:
        self.url = url
        self.ids = ids

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(sql, parameters).fetchall()  # type: ignore[arg-type]

    def place(self, name: str) -> str:
        """The table in which a run is. One statement, because a worker may move the run at any moment."""
        tables = ("ready", "waiting", "leases")
        looks = [f"select '{table}' from holdfast.{table} where run_id = %s" for table in tables]
        places = self.query(" union all ".join(looks), *[self.ids[name]] * len(tables))
        return str(places[0][0]) if places else "ended"

    def attempts(self, name: str) -> list[tuple[int, str]]:
        return self.query(
            "select number, status from holdfast.attempts where run_id = %s order by number", self.ids[name]
        )

    def result(self, name: str) -> Any:
        return self.query(
            "select result from holdfast.attempts where run_id = %s and outcome is not null", self.ids[name]
        )[0][0]

    def unfinished(self) -> bool:
        return bool(
            self.query("select from holdfast.run_status where status in ('PENDING', 'RUNNING')")
            or self.query("select from holdfast.jobs where finished_at is null")
        )


def begin(release: Release, url: str, directory: Path) -> Records:
    """Submit runs and jobs, and work on them until they are in many states; one worker stays, one is killed."""
    records = Records(url, json.loads(release.ok(url, directory, "tests.upgrade.states", str(directory))))
    once = release.start(url, directory, "holdfast", "worker", "--queues", "once", "--slots", "1")
    eventually(lambda: records.attempts("retried"), WITHIN)
    kill_tree(once)
    release.start(url, directory, "holdfast", "worker", "--queues", "default", "--slots", "6")
    doomed = release.start(url, directory, "holdfast", "worker", "--queues", "doomed", "--slots", "1")
    eventually(lambda: all((directory / name).exists() for name in ("orphaned", "leased", "chain")), WITHIN)
    eventually(lambda: records.query("select from holdfast.maps where open = 2 and total = 4"), WITHIN)
    kill_tree(doomed)
    assert records.place("ready") == "ready"
    assert (records.place("retried") in ("waiting", "ready"), records.attempts("retried")) == (True, [(1, "FAILED")])
    assert [records.place(name) for name in ("orphaned", "leased")] == ["leases", "leases"]
    assert records.place("join") == "waiting"
    return records


def finish(release: Release, records: Records, directory: Path) -> None:
    """Let a worker of this release finish everything, and check the results."""
    release.start(
        records.url, directory, "holdfast", "worker", "--queues", "default,unserved,doomed,once", "--slots", "4"
    )
    eventually(lambda: all(records.place(name) == "ended" for name in ("ready", "timed", "retried")), WITHIN)
    (directory / "opened").touch()
    eventually(lambda: not records.unfinished(), WITHIN)
    assert set(records.query("select status from holdfast.run_status")) == {("SUCCEEDED",)}
    assert set(records.query("select outcome from holdfast.jobs")) == {("SUCCEEDED",)}
    assert records.attempts("retried") == [(1, "FAILED"), (2, "SUCCEEDED")]
    assert records.attempts("orphaned") == [(1, "LOST"), (2, "SUCCEEDED")]
    assert records.attempts("leased") == [(1, "SUCCEEDED")]
    assert records.result("join") == sum(number**2 for number in range(40))
    assert records.query("select count(*), count(distinct run_id) from effects") == [(4, 4)]
    with psycopg.connect(records.url) as connection:
        assert disagreements(connection) == []


@pytest.mark.timeout(300)
def test_runs_begun_before_the_upgrade_are_finished_by_this_release(
    landed_url: str, before: Release, after: Release, tmp_path: Path
) -> None:
    records = begin(before, landed_url, tmp_path)
    after.ok(landed_url, tmp_path, "holdfast", "db", "upgrade")
    finish(after, records, tmp_path)


@pytest.mark.timeout(300)
def test_runs_begun_before_the_upgrade_are_finished_by_the_previous_release(
    landed_url: str, before: Release, after: Release, tmp_path: Path
) -> None:
    records = begin(before, landed_url, tmp_path)
    after.ok(landed_url, tmp_path, "holdfast", "db", "upgrade")
    finish(before, records, tmp_path)


@pytest.mark.timeout(300)
def test_runs_begun_by_this_release_are_finished_by_the_previous_release(
    upgraded_url: str, before: Release, after: Release, tmp_path: Path
) -> None:
    finish(before, begin(after, upgraded_url, tmp_path), tmp_path)
