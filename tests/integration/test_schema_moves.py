"""The database refuses every transition that is not listed, even in hand-written SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import psycopg
import pytest

from holdfast.domain.states import MOVES, Status
from tests.conformance.drivers import Psycopg
from tests.timeline import Timeline, new_run

FACTS = "gen_random_uuid(), holdfast.now(), holdfast.now()"

QUEUE = """insert into holdfast.ready (run_id, rank_at, number, ord, queue, task)
           values (%(run)s, now(), {n}, 0, 'default', 'work')"""
WAIT = """insert into holdfast.waiting (run_id, due_at, number, ord, queue, reason)
          values (%(run)s, now(), {n}, 0, 'default', 'scheduled')"""
LEASE = """insert into holdfast.leases (run_id, worker_id, claimed_at, number)
           values (%(run)s, (select id from holdfast.workers), now(), {n})"""
END = "insert into holdfast.attempts (number, worker_id, claimed_at, finished_at, run_id, status, outcome, result)"
SUCCEED = f"{END} values ({{n}}, {FACTS}, %(run)s, 'SUCCEEDED', 'SUCCEEDED', '1')"
FAIL = f"{END} values ({{n}}, {FACTS}, %(run)s, 'FAILED', 'FAILED', null)"
STOP = f"{END} values ({{n}}, {FACTS}, %(run)s, 'CANCELLED', 'CANCELLED', null)"
FAIL_UNTRIED = f"{END} values ({{n}}, null, null, now(), %(run)s, 'FAILED', 'FAILED', null)"
WITHDRAW = f"{END} values ({{n}}, null, null, now(), %(run)s, 'CANCELLED', 'CANCELLED', null)"

UNQUEUE = "with gone as (delete from holdfast.ready where run_id = %(run)s) "
UNLEASE = "with gone as (delete from holdfast.leases where run_id = %(run)s) "
REOPEN = """with back as (update holdfast.attempts set reopened_at = now(), reopened_by = 'me'
                          where run_id = %(run)s and outcome is not null) """


def _by_hand() -> dict[tuple[Status, Status], list[str]]:
    """For every pair of statuses, SQL statements that try to get from one to the other."""
    to: dict[Status, Callable[[int], list[str]]] = {
        Status.PENDING: lambda n: [QUEUE.format(n=n), WAIT.format(n=n)],
        Status.RUNNING: lambda n: [LEASE.format(n=n)],
        Status.SUCCEEDED: lambda n: [SUCCEED.format(n=n)],
        Status.FAILED: lambda n: [FAIL.format(n=n), FAIL_UNTRIED.format(n=0)],
        Status.CANCELLED: lambda n: [STOP.format(n=n), WITHDRAW.format(n=0)],
    }
    # How a run leaves its table: not at all, or in the same statement that inserts it elsewhere.
    leave = {Status.PENDING: ["", UNQUEUE], Status.RUNNING: ["", UNLEASE]}
    number = {Status.PENDING: (1, 2), Status.RUNNING: (1, 2)}
    attempts = {
        (old, new): [
            way + sql for way in leave.get(old, ["", REOPEN]) for n in number.get(old, (2, 3)) for sql in to[new](n)
        ]
        for old, new in product(Status, Status)
        if (old, new) not in MOVES
    }
    rewrite = "update holdfast.attempts set status = '{s}', outcome = '{s}', result = {r} where run_id = %(run)s"
    for (old, new), ways in attempts.items():
        if old.final and new.final:
            ways.append(rewrite.format(s=new, r="'1'" if new is Status.SUCCEEDED else "null"))
    # Moving a run between waiting and ready is allowed; changing its number at the same time is not.
    attempts[Status.PENDING, Status.PENDING].remove(UNQUEUE + WAIT.format(n=1))
    return attempts


BY_HAND = _by_hand()

# Listed transitions, without the steps that make them safe.
SHORTCUTS: dict[Status, list[str]] = {
    Status.PENDING: [
        LEASE.format(n=1),
        UNQUEUE + LEASE.format(n=2),
        WITHDRAW.format(n=0),
        UNQUEUE + STOP.format(n=1),
    ],
    Status.RUNNING: [
        QUEUE.format(n=1),
        QUEUE.format(n=2),
        WAIT.format(n=2),
        UNLEASE + QUEUE.format(n=2),
        UNLEASE + WAIT.format(n=1),
        UNLEASE + WAIT.format(n=2),
        UNLEASE + SUCCEED.format(n=2),
        SUCCEED.format(n=1),
        UNLEASE + WITHDRAW.format(n=0),
    ],
    Status.FAILED: [QUEUE.format(n=2), WAIT.format(n=2), REOPEN + "select 1"],
    Status.CANCELLED: [QUEUE.format(n=2), WAIT.format(n=2), REOPEN + "select 1"],
}

CREATE = """select holdfast.create_run(
                %(run)s::uuid, repeat('ab', 32), 'work', null, 0::smallint, 'default', '{}', null, null, null, null,
                null, null, false, false, false)"""

# Not being in any table.
VANISH = {
    Status.PENDING: ["delete from holdfast.ready where run_id = %(run)s"],
    Status.RUNNING: ["delete from holdfast.leases where run_id = %(run)s"],
    Status.SUCCEEDED: ["delete from holdfast.attempts where run_id = %(run)s"],
    Status.FAILED: ["delete from holdfast.attempts where run_id = %(run)s"],
    Status.CANCELLED: ["delete from holdfast.attempts where run_id = %(run)s"],
}
for ways in VANISH.values():
    ways.append("delete from holdfast.runs where id = %(run)s")

REFUSALS = (psycopg.errors.CheckViolation, psycopg.errors.UniqueViolation)


def bring(timeline: Timeline, status: Status) -> str:
    """Return a run that operations have brought into this status."""
    run = timeline.submit()
    timeline.worker("a")
    if status is Status.CANCELLED:
        timeline.cancel(run)
    elif status is not Status.PENDING:
        worker = timeline.worker("a")
        claim = worker.claims(run)
        if status is Status.SUCCEEDED:
            worker.succeeds(claim)
        elif status is Status.FAILED:
            worker.fails(claim, retryable=False)
    assert timeline.status(run) == status
    return run


def refused(timeline: Timeline, connection: psycopg.Connection, run: str, ways: list[str]) -> None:
    """Check that each statement is refused, and leaves the run unchanged."""
    before = (timeline.get(run), timeline.events(run))
    for sql in ways:
        try:
            connection.execute(sql, {"run": run})
        except REFUSALS:
            continue
        raise AssertionError(f"the database let this happen:\n{sql}\nnow: {timeline.get(run)}")
    assert (timeline.get(run), timeline.events(run)) == before


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def timeline(database_url: str, connection: psycopg.Connection) -> Iterator[Timeline]:
    with Psycopg(database_url) as driver:
        yield Timeline(driver, connection)


def test_every_pair_of_statuses_is_listed_or_tried() -> None:
    assert set(BY_HAND) | set(MOVES) == set(product(Status, Status))
    assert all(BY_HAND.values())


@pytest.mark.parametrize("old", Status)
def test_moves_that_are_not_listed_are_refused(timeline: Timeline, connection: psycopg.Connection, old: Status) -> None:
    run = bring(timeline, old)
    for (before, _), ways in BY_HAND.items():
        if before is old:
            refused(timeline, connection, run, ways)


@pytest.mark.parametrize("old", SHORTCUTS)
def test_shortcuts_are_refused(timeline: Timeline, connection: psycopg.Connection, old: Status) -> None:
    refused(timeline, connection, bring(timeline, old), SHORTCUTS[old])


@pytest.mark.parametrize("old", Status)
def test_run_cannot_be_removed_from_its_tables(timeline: Timeline, connection: psycopg.Connection, old: Status) -> None:
    refused(timeline, connection, bring(timeline, old), VANISH[old])


def test_waiting_run_is_subject_to_the_same_rules(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = timeline.submit()
    worker = timeline.worker("a")
    worker.fails(worker.claims(run))
    gone = "with gone as (delete from holdfast.waiting where run_id = %(run)s) "
    ways = [
        QUEUE.format(n=2),
        gone + QUEUE.format(n=3),
        gone + SUCCEED.format(n=2),
        gone + FAIL.format(n=2),
        gone + "select 1",
        LEASE.format(n=2),
        "update holdfast.waiting set number = 3 where run_id = %(run)s",
        "update holdfast.waiting set excused = 1 where run_id = %(run)s",
    ]
    refused(timeline, connection, run, ways)
    connection.execute(gone + QUEUE.format(n=2), {"run": run})
    worker.claims(run)


def test_partition_does_not_bypass_the_rules(timeline: Timeline, connection: psycopg.Connection) -> None:
    row = connection.execute("select holdfast.now()").fetchone()
    assert row is not None
    month = f"{row[0]:%Y_%m}"
    pending = bring(timeline, Status.PENDING)
    refused(
        timeline,
        connection,
        pending,
        [
            SUCCEED.format(n=1).replace("holdfast.attempts", f"holdfast.attempts_{month}"),
            WITHDRAW.format(n=0).replace("holdfast.attempts", f"holdfast.attempts_{month}"),
            f"update holdfast.runs_{month} set priority = 1 where id = %(run)s",
            f"delete from holdfast.runs_{month} where id = %(run)s",
        ],
    )
    timeline.cancel(pending)
    refused(
        timeline,
        connection,
        pending,
        [
            f"update holdfast.attempts_{month} set reason = 'other' where run_id = %(run)s",
            f"delete from holdfast.attempts_{month} where run_id = %(run)s",
        ],
    )


def test_a_lease_is_refused_for_a_worker_that_has_left(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = bring(timeline, Status.PENDING)
    timeline.worker("a").deregister()
    refused(timeline, connection, run, [UNQUEUE + LEASE.format(n=1)])


def test_a_lease_is_refused_for_a_worker_that_expires_while_the_statement_waits(
    timeline: Timeline, connection: psycopg.Connection
) -> None:
    run = bring(timeline, Status.PENDING)
    connection.execute("update holdfast.workers set expires_at = holdfast.now() + interval '0.2 seconds'")
    slowly = """with slow as materialized (select pg_sleep(0.3)), gone as (
                    delete from holdfast.ready using slow where run_id = %(run)s returning run_id)
                insert into holdfast.leases (run_id, worker_id, claimed_at, number)
                select gone.run_id, workers.id, holdfast.now(), 1 from gone, holdfast.workers"""
    refused(timeline, connection, run, [slowly])


def test_released_claim_keeps_its_attempt_number(timeline: Timeline, connection: psycopg.Connection) -> None:
    run = bring(timeline, Status.RUNNING)
    connection.execute(UNLEASE + QUEUE.format(n=1), {"run": run})
    assert timeline.status(run) == Status.PENDING
    assert timeline.worker("a").claims(run).number == 1


@pytest.mark.parametrize("old", Status)
def test_run_that_exists_is_not_created_again(timeline: Timeline, connection: psycopg.Connection, old: Status) -> None:
    refused(timeline, connection, bring(timeline, old), [CREATE])


def test_guards_apply_again_in_the_transaction_of_a_new_run(timeline: Timeline, connection: psycopg.Connection) -> None:
    running, ended = bring(timeline, Status.RUNNING), bring(timeline, Status.FAILED)
    for run, sql in ((running, QUEUE.format(n=1)), (ended, QUEUE.format(n=2)), (ended, LEASE.format(n=2))):
        with connection.transaction(force_rollback=True):
            connection.execute(CREATE, {"run": new_run().id})
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute(sql, {"run": run})
