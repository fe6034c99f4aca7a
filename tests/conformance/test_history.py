"""Reading the history of runs: events, attempts, results and provenance."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import ops
from holdfast.client.verifying import in_order
from holdfast.domain.errors import RunCancelled, RunFailed, RunNotFinished, RunNotFound
from holdfast.domain.ids import new_id
from holdfast.domain.records import EventRecord
from holdfast.domain.settling import Succeeded, settle
from holdfast.domain.states import MOVES, Status
from holdfast.domain.values import Claim, Position, WorkerInfo
from holdfast.drivers import psycopg as psycopg_driver
from holdfast.ops.history import provenance_of
from holdfast.sql import workers
from holdfast.sql.statement import Op
from tests.conformance.drivers import Driver
from tests.integration.worker_support import eventually
from tests.timeline import Timeline

# Whether a statement waits for a lock in this database.
WAITING = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


def long_history(timeline: Timeline) -> str:
    """Retried, handed back, lost, cancelled, reopened, cancelled again, reopened, and finally succeeded."""
    run = timeline.submit(policy='{"max_attempts": 9}')
    worker = timeline.worker("a", lease=timedelta(minutes=30))
    worker.fails(worker.claims(run))
    timeline.later(seconds=5)
    timeline.promote()
    worker.hands_back(worker.claims(run))
    worker.claims(run)
    timeline.later(minutes=31)
    timeline.rescue()
    timeline.cancel(run)
    timeline.retry(run, "ada")
    other = timeline.worker("b")
    claim = other.claims(run)
    timeline.cancel(run)
    other.stops(claim)
    timeline.retry(run, "bob")
    other.succeeds(other.claims(run))
    return run


@pytest.mark.every_driver
def test_events_are_numbered_in_order_without_gaps(timeline: Timeline) -> None:
    run = long_history(timeline)
    assert timeline.story(run) == (
        "SUBMITTED CLAIMED RETRIED CLAIMED HANDED_BACK CLAIMED LOST CANCELLED REOPENED CLAIMED "
        "CANCEL_REQUESTED CANCELLED REOPENED CLAIMED SUCCEEDED"
    )
    events = timeline.events(run)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert timeline.events(run, after=10) == events[10:]


def test_events_are_listed_transitions_that_lead_to_the_status(timeline: Timeline) -> None:
    run = long_history(timeline)
    status = None
    for event in timeline.events(run):
        if event.to_status is None:
            continue
        assert event.from_status == status
        if status is not None:
            assert (Status(status), Status(event.to_status)) in MOVES
        status = event.to_status
        if status == timeline.status(run):
            break
    assert status == timeline.status(run) == "SUCCEEDED"


def test_events_have_the_number_of_their_attempt(timeline: Timeline) -> None:
    run = long_history(timeline)
    assert [(event.type, event.attempt) for event in timeline.events(run)][-5:] == [
        ("CANCEL_REQUESTED", 4),
        ("CANCELLED", 4),
        ("REOPENED", 4),
        ("CLAIMED", 5),
        ("SUCCEEDED", 5),
    ]


def test_attempts_are_listed_in_order(timeline: Timeline) -> None:
    run = long_history(timeline)
    attempts = timeline.attempts(run)
    assert [attempt.number for attempt in attempts] == [1, 2, 3, 4, 5]
    assert [attempt.status for attempt in attempts] == ["FAILED", "CANCELLED", "LOST", "CANCELLED", "SUCCEEDED"]
    assert attempts[0].error == {"class": "Broken", "message": "it broke", "traceback": None}


def test_live_attempt_is_listed(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.claims(run)
    (attempt,) = timeline.attempts(run)
    assert (attempt.number, attempt.status, attempt.worker_id, attempt.finished_at) == (1, "RUNNING", worker.id, None)


def test_reading_the_result_of_an_unfinished_run_raises(timeline: Timeline) -> None:
    run = timeline.submit()
    with pytest.raises(RunNotFinished):
        timeline.perform(lambda: ops.result(run))
    worker = timeline.worker("a")
    claim = worker.claims(run)
    with pytest.raises(RunNotFinished):
        timeline.perform(lambda: ops.result(run))
    worker.succeeds(claim, "null")
    assert timeline.perform(lambda: ops.result(run)).text == "null"


@pytest.mark.every_driver
def test_failed_run_raises_its_error(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.fails(worker.claims(run), retryable=False)
    with pytest.raises(RunFailed) as failed:
        timeline.perform(lambda: ops.result(run))
    assert failed.value.error is not None
    assert failed.value.error["class"] == "Broken"


def test_cancelled_run_has_no_result(timeline: Timeline) -> None:
    run = timeline.submit()
    timeline.cancel(run, "enough")
    with pytest.raises(RunCancelled, match="enough"):
        timeline.perform(lambda: ops.result(run))


def test_provenance_has_the_environment_of_the_worker(timeline: Timeline) -> None:
    run = timeline.submit()
    worker = timeline.worker("a", environment={"python_version": "3.13.0", "packages": {"numpy": "2.1.0"}})
    worker.succeeds(worker.claims(run))
    found = timeline.perform(lambda: provenance_of(run)).workers[worker.id]
    assert found.environment == {"python_version": "3.13.0", "packages": {"numpy": "2.1.0"}}


@pytest.mark.every_driver
@pytest.mark.parametrize("read", [ops.get, ops.events, ops.attempts, ops.result])
def test_unknown_run_is_not_found(timeline: Timeline, read: object) -> None:
    with pytest.raises(RunNotFound):
        timeline.perform(lambda: read(new_id()))  # type: ignore[operator]


def test_late_fenced_event_does_not_renumber_earlier_events(
    timeline: Timeline, driver: Driver, connection: psycopg.Connection
) -> None:
    run, late = lost_attempt(timeline)
    with driver.borrow() as stale:
        stale(ops.finish(timeline.worker("a").id, [settle(late, Succeeded("1"), 0.5)]))
        in_between(connection, lambda: ops.claim(new_worker(connection), [Position("default")], ["work"], 1))
        seen = read(connection, run)
    events = read(connection, run)
    assert events[: len(seen)] == seen
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events] == ["SUBMITTED", "CLAIMED", "LOST", "FENCED"]


def test_fenced_event_during_a_transition_follows_that_transition(
    timeline: Timeline, driver: Driver, connection: psycopg.Connection
) -> None:
    run, late = lost_attempt(timeline)
    worker = new_worker(connection)
    with connection.transaction():
        (claim,) = psycopg_driver.run(connection, ops.claim(worker, [Position("default")], ["work"], 1))
        with driver.borrow() as stale:
            stale(ops.finish(timeline.worker("a").id, [settle(late, Succeeded("1"), 0.5)]))
    seen = read(connection, run)
    assert [event.type for event in seen] == ["SUBMITTED", "CLAIMED", "LOST", "CLAIMED"]
    in_between(connection, lambda: ops.finish(worker, [settle(claim, Succeeded("1"), 0.5)]))
    events = read(connection, run)
    assert events[: len(seen)] == seen
    assert [event.type for event in events[len(seen) :]] == ["SUCCEEDED", "FENCED"]
    assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6]
    assert in_order(events).holds
    [(refused_at,)] = connection.execute("select at from holdfast.events").fetchall()
    assert events[3].at < refused_at < events[4].at == events[5].at
    assert events[5].reason == f"the lease was gone when the attempt ended, at {refused_at:%Y-%m-%d %H:%M:%S.%f} UTC"


def test_end_of_a_run_that_waited_for_a_cancel_follows_the_cancel(
    timeline: Timeline, driver: Driver, connection: psycopg.Connection, database_url: str
) -> None:
    """The statement that waited began before the other one; its event is not shown as earlier."""
    run = timeline.submit()
    worker = timeline.worker("a")
    claim = worker.claims(run)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database_url, autocommit=True) as third:
        with connection.transaction():
            connection.execute("select from holdfast.leases for update")
            ended = pool.submit(worker.succeeds, claim)
            eventually(lambda: third.execute(WAITING).fetchone())
            psycopg_driver.run(connection, ops.cancel(run, "no need"))
            seen = psycopg_driver.run(connection, ops.events(run))
        ended.result(30)
    events = timeline.events(run)
    assert events[: len(seen)] == seen
    assert [event.type for event in events] == ["SUBMITTED", "CLAIMED", "CANCEL_REQUESTED", "CANCELLED"]
    assert in_order(events).holds


def test_end_is_not_shown_as_earlier_than_a_fenced_event_that_it_waited_for(
    timeline: Timeline, driver: Driver, connection: psycopg.Connection, database_url: str
) -> None:
    run, late = lost_attempt(timeline)
    worker = timeline.worker("b")
    claim = worker.claims(run)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database_url, autocommit=True) as third:
        with connection.transaction():
            connection.execute("select from holdfast.leases for update")
            ended = pool.submit(worker.succeeds, claim)
            eventually(lambda: third.execute(WAITING).fetchone())
            psycopg_driver.run(connection, ops.finish(timeline.worker("a").id, [settle(late, Succeeded("1"), 0.5)]))
            seen = psycopg_driver.run(connection, ops.events(run))
        ended.result(30)
    events = timeline.events(run)
    assert events[: len(seen)] == seen
    assert [event.type for event in events[3:]] == ["CLAIMED", "FENCED", "SUCCEEDED"]
    assert in_order(events).holds


def lost_attempt(timeline: Timeline) -> tuple[str, Claim]:
    """Return a run whose first attempt was lost, and the claim of its worker, which does not know that."""
    run = timeline.submit(policy='{"delays": [0.0]}')
    late = timeline.worker("a").claims(run)
    timeline.later(minutes=5)
    timeline.rescue()
    return run, late


def new_worker(connection: psycopg.Connection) -> str:
    info = WorkerInfo(new_id(), "host", 1, "b", "inline", "0", 1, timedelta(minutes=10))
    psycopg_driver.run(connection, iter(workers.register(info)))
    return info.id


def in_between(connection: psycopg.Connection, make_op: Callable[[], Op[Any]]) -> Any:
    return psycopg_driver.transact(connection, make_op)


def read(connection: psycopg.Connection, run: str) -> list[EventRecord]:
    return psycopg_driver.transact(connection, lambda: ops.events(run))
