"""A database that becomes unreachable while runs are executed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.states import Status
from holdfast.observe import subscribe
from tests.integration.wire import Wire
from tests.integration.worker_support import Stage, eventually


@pytest.fixture
def events() -> Iterator[list[str]]:
    """The names of the emitted events, in order."""
    names: list[str] = []
    stop = subscribe(lambda event, fields: names.append(event))
    yield names
    stop()


@pytest.mark.parametrize("executor", ["process", "inline"])
def test_run_continues_during_a_database_outage_and_ends_afterwards(
    database_url: str, tmp_path: Path, wire: Wire, events: list[str], executor: str
) -> None:
    stage = Stage(database_url, tmp_path, lease_seconds=60, renew_seconds=0.2)
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    with stage.worker(executor, database_url=wire.url, slots=1):
        stage.said("started")
        wire.cut()
        eventually(lambda: events.count("renewal.failed") >= 2)
        stage.file("go").touch()
        eventually(lambda: "database.away" in events)
        later = stage.submit("echo", value=1)
        wire.mend()
        assert stage.ended(run).attempt_count == 1
        assert stage.ended(later).result() == 1
    assert stage.event_types(run) == ["SUBMITTED", "CLAIMED", "SUCCEEDED"]
    assert "worker.fenced" not in events
    stage.close()


@pytest.mark.parametrize("executor", ["process", "inline"])
def test_worker_without_its_database_stops_its_runs_before_the_lease_expires(
    database_url: str, tmp_path: Path, wire: Wire, events: list[str], executor: str
) -> None:
    stage = Stage(database_url, tmp_path)
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    with stage.worker(executor, database_url=wire.url, slots=1) as worker:
        stage.said("started", 1)
        first = worker.id
        wire.cut()
        eventually(lambda: "worker.fenced" in events)
        # No other worker can have had the run when this worker gave it up.
        assert stage.client.get(run).lease_owner == first
        wire.mend()
        stage.said("started", 2)
        assert worker.id != first
        stage.file("go").touch()
        ended = stage.ended(run)
    assert (ended.status, ended.attempt_count) == (Status.SUCCEEDED, 2)
    assert stage.attempts(run)[0][3] in ("crash", "lost")
    stage.close()


def test_a_step_waits_for_the_database(database_url: str, tmp_path: Path, wire: Wire, events: list[str]) -> None:
    stage = Stage(database_url, tmp_path, lease_seconds=60, renew_seconds=0.2)
    run = stage.submit("waiting_step", started=str(stage.file("started")), go=str(stage.file("go")))
    with stage.worker(database_url=wire.url):
        stage.said("started")
        wire.cut()
        eventually(lambda: "renewal.failed" in events)
        stage.file("go").touch()
        stage.said("started", 2)
        wire.mend()
        ended = stage.ended(run)
    assert (ended.result(), ended.attempt_count) == ("stepped", 1)
    stage.close()


def test_worker_waits_for_its_database_at_the_start(
    database_url: str, tmp_path: Path, wire: Wire, events: list[str]
) -> None:
    stage = Stage(database_url, tmp_path)
    wire.cut()
    run = stage.submit("echo", value=1)
    with stage.worker(database_url=wire.url, wait_for_database=True):
        eventually(lambda: "database.away" in events)
        wire.mend()
        assert stage.ended(run).result() == 1
    stage.close()


def test_a_worker_that_cannot_reach_its_database_still_stops(
    database_url: str, tmp_path: Path, wire: Wire, events: list[str]
) -> None:
    stage = Stage(database_url, tmp_path, lease_seconds=60, renew_seconds=0.2)
    run = stage.submit("patient", started=str(stage.file("started")))
    with stage.worker(database_url=wire.url):
        stage.said("started")
        wire.cut()
        eventually(lambda: "renewal.failed" in events)
    assert events[-1] == "worker.stopped"
    assert stage.client.get(run).status is Status.RUNNING
    stage.close()


def test_database_that_does_not_respond_is_treated_as_unreachable(
    database_url: str, tmp_path: Path, wire: Wire, events: list[str]
) -> None:
    stage = Stage(database_url, tmp_path)
    run = stage.submit("patient", started=str(stage.file("started")), until=str(stage.file("go")))
    with stage.worker(database_url=wire.url, slots=1) as worker:
        stage.said("started", 1)
        first = worker.id
        wire.swallow()
        eventually(lambda: "worker.fenced" in events)
        assert stage.client.get(run).lease_owner == first
        wire.mend()
        stage.file("go").touch()
        ended = stage.ended(run)
        assert worker.id != first
    assert (ended.status, ended.attempt_count) == (Status.SUCCEEDED, 2)
    stage.close()


def test_worker_stops_although_its_database_does_not_respond(
    database_url: str, tmp_path: Path, wire: Wire, events: list[str]
) -> None:
    stage = Stage(database_url, tmp_path, lease_seconds=60, renew_seconds=0.2)
    stage.submit("patient", started=str(stage.file("started")))
    with stage.worker(database_url=wire.url):
        stage.said("started")
        wire.swallow()
        eventually(lambda: "renewal.failed" in events)
    assert "worker.stopped" in events
    stage.close()
