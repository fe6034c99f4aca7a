"""Under load a second round trip to the database overlaps the first."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.observe import subscribe
from holdfast.worker.exchange import Exchange
from tests.integration.wire import Wire
from tests.integration.worker_support import Stage, eventually

MANY = 10_000


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database_url, tmp_path, lease_seconds=60, renew_seconds=5)
    yield stage
    stage.close()


@pytest.fixture
def overlapping(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of results in each overlapping round trip."""
    carried: list[int] = []
    overlap = Exchange._overlap

    def counting(exchange: Exchange) -> None:
        waiting, before = len(exchange.pending.waiting), exchange._second.task
        overlap(exchange)
        if exchange._second.task is not None and before is None:
            carried.append(waiting - len(exchange.pending.waiting))

    monkeypatch.setattr(Exchange, "_overlap", counting)
    return carried


def all_ended_once(stage: Stage) -> None:
    """Every run succeeded once with its own result, and no rows are left over."""
    assert stage.query("select count(*) from holdfast.ready")[0][0] == 0
    assert stage.query("select count(*) from holdfast.leases")[0][0] == 0
    ended, right = stage.query(
        "select count(*), count(*) filter (where result::text = runs.parameters ->> 'value')"
        " from holdfast.attempts join holdfast.runs on runs.id = run_id where outcome = 'SUCCEEDED'"
    )[0]
    assert (ended, right) == (MANY, MANY)


def left(stage: Stage) -> int:
    found = stage.query("select (select count(*) from holdfast.ready) + (select count(*) from holdfast.leases)")
    return int(found[0][0])


def test_overlapping_round_trips_end_every_run_once(stage: Stage, overlapping: list[int]) -> None:
    stage.client.submit_many("echo", [{"value": n} for n in range(MANY)])
    with stage.worker("inline"):
        eventually(lambda: left(stage) == 0)
    all_ended_once(stage)
    assert stage.query("select max(number) from holdfast.attempts")[0][0] == 1
    assert overlapping, "no overlapping round trip was made"


def test_lost_connection_during_overlapping_round_trips_neither_loses_nor_duplicates_runs(
    stage: Stage, wire: Wire, overlapping: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.round_trips.REST", 0.0)
    fenced: list[str] = []
    stop = subscribe(lambda event, fields: fenced.append(event) if event == "run.refused" else None)
    dice = random.Random(5)
    stage.client.submit_many("echo", [{"value": n} for n in range(MANY)])
    with stage.worker("inline", database_url=wire.url):
        for _ in range(6):
            began = len(overlapping)
            eventually(lambda began=began: len(overlapping) > began or left(stage) == 0)  # type: ignore[misc]
            time.sleep(dice.uniform(0.0, 0.03))
            wire.cut()
            time.sleep(dice.uniform(0.0, 0.1))
            wire.mend()
        eventually(lambda: left(stage) == 0)
    stop()
    all_ended_once(stage)
    assert overlapping, "no overlapping round trip was made"
    assert not fenced


def test_worker_that_is_stopped_leaves_no_lease_behind(stage: Stage) -> None:
    stage.client.submit_many("echo", [{"value": n} for n in range(MANY)])
    for _ in range(3):
        before = left(stage)
        with stage.worker("inline"):
            eventually(lambda before=before: left(stage) < before)
        assert stage.query("select count(*) from holdfast.leases")[0][0] == 0
    with stage.worker("inline"):
        eventually(lambda: left(stage) == 0)
    all_ended_once(stage)


def test_notes_are_written_before_the_result_of_their_run(stage: Stage) -> None:
    stage.client.submit_many("talks", [{"value": n} for n in range(1_000)])
    with stage.worker("inline"):
        eventually(lambda: left(stage) == 0)
    counts = stage.query("select count(*), count(distinct run_id) from holdfast.logs")
    assert counts == [(1_000, 1_000)]
    assert stage.query("select count(*) from holdfast.attempts where progress ->> 'done' = '1'") == [(1_000,)]
