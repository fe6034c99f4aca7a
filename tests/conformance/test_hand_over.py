"""A submit hands its run to a waiting worker: the statement that creates the run also leases it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import psycopg
import pytest

from holdfast import ops
from holdfast.domain.doorbell import LISTENING, Address
from holdfast.domain.values import Claim, NewRun, Payload
from holdfast.sql import tallies, waiting_workers
from holdfast.sql import workers as worker_statements
from holdfast.sql.statement import Statement, nothing
from holdfast.sql.waiting_workers import Given, Listed
from tests.conformance.drivers import Driver
from tests.timeline import Timeline, Worker, new_run

CHANNEL = "holdfast_of_a_test"
# No server process has this id.
NO_PROCESS = -1
DEADLINE = 30.0


def hold_lock(connection: psycopg.Connection[Any]) -> None:
    """Hold the lock of a connection that listens."""
    connection.execute("select pg_advisory_lock(%s, pg_backend_pid())", [LISTENING])


class Waiting:
    """Workers that wait on one connection, and the notifications that it receives."""

    def __init__(self, timeline: Timeline, connection: psycopg.Connection[Any]) -> None:
        self.timeline = timeline
        self._connection = connection
        self._arrived: list[psycopg.Notify] = []
        self.address = Address(CHANNEL, connection.info.backend_pid)
        hold_lock(connection)
        connection.execute(f"listen {CHANNEL}")
        connection.execute("listen holdfast")

    def worker(self, name: str = "a", **options: Any) -> Worker:
        """Register a worker, and make it wait."""
        worker = self.timeline.worker(name, **({"tasks": ("work", "other work")} | options))
        assert self.waits(worker, options.get("queues")) == Listed(waits=True, found=False)
        return worker

    def waits(self, worker: Worker, queues: tuple[str, ...] | None = None) -> Listed:
        return self.timeline.ask(waiting_workers.wait(worker.id, self.address, queues, ["work", "other work"]))

    def notification(self) -> tuple[str, str]:
        """Return the channel and the payload of the next notification."""
        if not self._arrived:
            self._arrived.extend(self._connection.notifies(timeout=DEADLINE, stop_after=1))
        notify = self._arrived.pop(0)
        return notify.channel, notify.payload

    def received(self, worker: Worker) -> Claim:
        """Return the claim that the worker is notified of."""
        channel, payload = self.notification()
        assert (channel, payload[: len(worker.id)]) == (CHANNEL, worker.id)
        row = orjson.loads(payload[len(worker.id) :])
        return Claim(*row[:6], bytes.fromhex(row[6]), *row[7:])


@pytest.fixture
def waiters(timeline: Timeline, connection: psycopg.Connection[Any]) -> Iterator[Waiting]:
    return Waiting(timeline, connection)


def submit(timeline: Timeline, new: NewRun | None = None, *, again: bool = False, **options: Any) -> str:
    """Submit a run like a client that sends its hint with the statement."""
    new = new or new_run(**options)
    payload = Payload(new.id, new.parameters, new.payload_hash)
    answer = timeline.perform(lambda: ops.submit_one(new, payload, ring=True, again=again))
    assert answer.rung == answer.created
    return answer.run.id


@pytest.mark.every_driver
def test_run_is_leased_to_the_waiting_worker_and_ended_by_it(timeline: Timeline, waiters: Waiting) -> None:
    worker = waiters.worker()
    new = new_run(
        {"text": 'a "quoted" \U0001f40b'}, priority=3, policy='{"max_attempts": 2}', traceparent="00-aa-bb-01"
    )
    run = submit(timeline, new)
    assert timeline.status(run) == "RUNNING"
    claim = waiters.received(worker)
    assert (claim.run_id, claim.number, claim.spent, claim.ord) == (run, 1, 1, -3)
    assert (claim.task, claim.queue, claim.parameters) == (new.task, new.queue, new.parameters)
    assert (claim.payload_hash.hex(), claim.policy, claim.traceparent) == (new.payload_hash, new.policy, "00-aa-bb-01")
    assert worker.renew().held == {claim.ref}
    assert worker.succeeds(claim).accepted
    assert timeline.story(run) == "SUBMITTED CLAIMED SUCCEEDED"


@pytest.mark.every_driver
def test_handed_over_claim_equals_a_claim_read_from_the_database(timeline: Timeline, waiters: Waiting) -> None:
    worker = waiters.worker()
    submit(timeline, parameters={"n": 1})
    claim = waiters.received(worker)
    (read,) = timeline.ask(waiting_workers.given(worker.id)).claims
    assert read._replace(lag=0, rank_at=claim.rank_at) == claim
    assert worker.releases(claim).accepted
    assert timeline.worker("b").claims(claim.run_id)._replace(lag=0) == claim


def test_waiting_worker_is_handed_only_one_run(timeline: Timeline, waiters: Waiting) -> None:
    waiters.worker()
    first, second = submit(timeline), submit(timeline)
    assert (timeline.status(first), timeline.status(second)) == ("RUNNING", "PENDING")
    assert [waiters.notification()[0] for _ in range(2)] == [CHANNEL, "holdfast"]


@pytest.mark.parametrize("again", [False, True])
def test_new_run_is_counted_once_whether_it_is_handed_over_or_queued(
    timeline: Timeline, waiters: Waiting, again: bool
) -> None:
    waiters.worker()
    handed, queued = submit(timeline, again=again), submit(timeline, again=again)
    assert (timeline.status(handed), timeline.status(queued)) == ("RUNNING", "PENDING")
    totals = timeline.ask(tallies.totals())
    assert {kind: amount for (_, kind, _), (amount, _) in totals.items()} == {"created": 2}


def test_run_is_handed_to_the_worker_that_has_waited_longest(timeline: Timeline, waiters: Waiting) -> None:
    waited = []
    for name in ("c", "a", "b"):
        waited.append(waiters.worker(name))
        timeline.later(seconds=1)
    for worker in waited:
        run = submit(timeline)
        assert timeline.get(run).lease_owner == worker.id


@pytest.mark.parametrize("task", ["work", "other work"])
def test_new_run_does_not_overtake_an_older_run_of_its_queue(timeline: Timeline, waiters: Waiting, task: str) -> None:
    worker = waiters.worker()
    older = timeline.submit(task=task)
    run = submit(timeline, priority=7)
    assert (timeline.status(older), timeline.status(run)) == ("PENDING", "PENDING")
    assert not waiters.waits(worker).waits


def test_runs_that_the_worker_cannot_execute_do_not_prevent_a_hand_over(timeline: Timeline, waiters: Waiting) -> None:
    timeline.submit(task="unknown")
    timeline.submit(queue="paused")
    timeline.pause("paused")
    waiters.worker()
    assert timeline.status(submit(timeline)) == "RUNNING"


def test_run_of_a_paused_queue_is_not_handed_over(timeline: Timeline, waiters: Waiting) -> None:
    waiters.worker()
    timeline.pause("default")
    assert timeline.status(submit(timeline)) == "PENDING"


def test_run_of_an_unknown_task_is_not_handed_over(timeline: Timeline, waiters: Waiting) -> None:
    waiters.worker()
    assert timeline.status(submit(timeline, task="unknown")) == "PENDING"


def test_run_of_another_queue_is_not_handed_over(timeline: Timeline, waiters: Waiting) -> None:
    waiters.worker(queues=("mine", "also mine"))
    assert timeline.status(submit(timeline)) == "PENDING"
    assert timeline.status(submit(timeline, queue="also mine")) == "RUNNING"


def test_run_is_not_handed_to_an_expired_worker(timeline: Timeline, waiters: Waiting) -> None:
    waiters.worker()
    timeline.later(seconds=59.5)
    assert timeline.status(submit(timeline)) == "PENDING"


def test_run_is_not_handed_to_a_draining_worker(timeline: Timeline, waiters: Waiting) -> None:
    worker = waiters.worker()
    worker.drain()
    assert timeline.status(submit(timeline)) == "PENDING"


def test_run_is_not_handed_to_a_stopped_worker(
    timeline: Timeline, waiters: Waiting, connection: psycopg.Connection[Any]
) -> None:
    waiters.worker().deregister()
    assert timeline.status(submit(timeline)) == "PENDING"
    assert connection.execute("select count(*) from holdfast.waiting_workers").fetchone() == (0,)


def test_run_is_not_handed_to_a_worker_whose_connection_is_closed(
    timeline: Timeline, waiters: Waiting, connection: psycopg.Connection[Any], database_url: str
) -> None:
    with psycopg.connect(database_url) as gone:
        pid = gone.info.backend_pid
        hold_lock(gone)
        waiters.address = Address(CHANNEL, pid)
        waiters.worker()
    for _ in range(100_000):
        if connection.execute("select from pg_stat_activity where pid = %s", [pid]).fetchone() is None:
            break
    assert timeline.status(submit(timeline)) == "PENDING"


def test_two_submits_see_that_a_connection_is_closed(
    timeline: Timeline, waiters: Waiting, connection: psycopg.Connection[Any]
) -> None:
    """The lock that one of them takes does not look like that of a connection that listens."""
    waiters.address = Address(CHANNEL, NO_PROCESS)
    waiters.worker()
    connection.execute("select pg_advisory_lock_shared(%s, %s)", [LISTENING, NO_PROCESS])
    assert timeline.status(submit(timeline)) == "PENDING"


def test_run_is_queued_after_its_worker_has_left_the_list(timeline: Timeline, waiters: Waiting) -> None:
    worker = waiters.worker()
    assert timeline.ask(waiting_workers.leave(worker.id))
    run = submit(timeline)
    assert worker.claims(run).number == 1
    assert not timeline.ask(waiting_workers.leave(worker.id))


def test_worker_that_has_left_the_list_is_handed_nothing_while_another_waits(
    timeline: Timeline, waiters: Waiting
) -> None:
    waiters.worker("of another task", tasks=("unknown",))
    timeline.ask(waiting_workers.leave(waiters.worker("a").id))
    assert timeline.status(submit(timeline)) == "PENDING"


def test_worker_that_waits_again_is_handed_another_run(timeline: Timeline, waiters: Waiting) -> None:
    worker = waiters.worker()
    submit(timeline)
    worker.succeeds(waiters.received(worker))
    assert waiters.waits(worker).waits
    assert timeline.status(submit(timeline)) == "RUNNING"


def test_worker_that_still_waits_has_been_handed_nothing(timeline: Timeline, waiters: Waiting) -> None:
    worker = timeline.worker("a", tasks=("work",))
    worker.claims(timeline.submit())
    waiters.worker()
    assert timeline.ask(waiting_workers.given(worker.id)) == Given(waits=True, claims=[])


def test_claim_that_is_too_long_for_a_notification_is_read_from_the_database(
    timeline: Timeline, waiters: Waiting
) -> None:
    worker = waiters.worker()
    run = submit(timeline, parameters={"text": '"' * 4000})
    assert waiters.notification() == (CHANNEL, worker.id)
    waits, (claim,) = timeline.ask(waiting_workers.given(worker.id))
    assert (waits, claim.run_id) == (False, run)
    assert worker.succeeds(claim).accepted


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "SUCCEEDED"])
def test_guards_reject_the_hand_over_of_an_older_run_even_if_the_caller_turns_them_off(
    timeline: Timeline, waiters: Waiting, database_url: str, status: str
) -> None:
    """Every role may call the function, so a setting of the caller must not turn off the guards that it relies on."""
    run = timeline.submit()
    if status != "PENDING":
        worker = timeline.worker("of the run", tasks=("work",))
        claim = worker.claims(run)
        if status == "SUCCEEDED":
            worker.succeeds(claim)
    waiters.worker("a", queues=("mine",))
    with psycopg.connect(database_url) as other:
        other.execute("set holdfast.creating = 'by hand'")
        with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.UniqueViolation)):
            other.execute("select holdfast.hand_over(%s, 'mine', 'work')", [run])
        other.rollback()
    assert timeline.status(run) == status


@pytest.mark.every_driver
def test_run_with_a_new_key_is_handed_over_once(timeline: Timeline, waiters: Waiting) -> None:
    worker = waiters.worker()
    new = new_run({"n": 1}, key="k")
    run = submit(timeline, new)
    assert timeline.status(run) == "RUNNING"
    worker.succeeds(waiters.received(worker))
    assert waiters.waits(worker).waits
    assert submit(timeline, replace(new, id=new_run().id)) == run
    assert timeline.ask(waiting_workers.leave(worker.id))


def test_repeated_submit_hands_over_nothing(timeline: Timeline, waiters: Waiting) -> None:
    worker = waiters.worker()
    new = new_run()
    run = submit(timeline, new)
    worker.succeeds(waiters.received(worker))
    assert waiters.waits(worker).waits
    assert submit(timeline, new, again=True) == run
    assert timeline.ask(waiting_workers.leave(worker.id))


@pytest.mark.parametrize("options", [{"dedupe": "active"}, {"run_after": timedelta(seconds=1)}])
def test_run_with_dedupe_or_a_start_time_is_queued(
    timeline: Timeline, waiters: Waiting, options: dict[str, Any]
) -> None:
    worker = waiters.worker()
    new = new_run(**options)
    payload = Payload(new.id, new.parameters, new.payload_hash)
    timeline.perform(lambda: ops.submit_one(new, payload, ring=True))
    assert timeline.status(new.id) == "PENDING"
    assert timeline.ask(waiting_workers.leave(worker.id))


@pytest.mark.every_driver
def test_runs_of_a_callers_transaction_and_of_batches_are_queued(
    timeline: Timeline, driver: Driver, waiters: Waiting
) -> None:
    worker = waiters.worker()
    new, first, many = new_run(), new_run(), [new_run() for _ in range(2)]
    with driver.borrow() as run:
        run(ops.submit_one(first, Payload(first.id, first.parameters, first.payload_hash), again=False))
        run(ops.submit(new))
        # The caller's transaction may stay open for long, so it must not lock the worker's row.
        waiters._connection.execute("select from holdfast.waiting_workers for update nowait")
    timeline.perform(lambda: ops.submit_many(many))
    assert {timeline.status(one.id) for one in (new, first, *many)} == {"PENDING"}
    assert timeline.ask(waiting_workers.leave(worker.id))


@pytest.mark.every_driver
def test_worker_does_not_wait_in_a_list_that_has_grown(timeline: Timeline, waiters: Waiting) -> None:
    worker = timeline.worker("a", tasks=("work",))
    listing = waiting_workers.wait(worker.id, waiters.address, None, ["work"])
    full = replace(listing, params={**listing.params, "most_bytes": 0})
    assert timeline.ask(full) == Listed(waits=False, found=False)


@pytest.mark.fresh_database  # changes a setting of the driver's session
def test_submit_does_not_wait_for_a_worker_that_is_leaving_the_list(
    timeline: Timeline, waiters: Waiting, database_url: str
) -> None:
    leaving, waits = (waiters.worker(name) for name in ("a", "b"))
    timeline.ask(Statement("set lock_timeout = '100ms'", {}, nothing))
    with psycopg.connect(database_url) as other:
        other.execute("select from holdfast.waiting_workers where worker_id = %s for update", [leaving.id])
        assert timeline.get(submit(timeline)).lease_owner == waits.id
        assert timeline.status(submit(timeline)) == "PENDING"


@pytest.mark.fresh_database  # changes a setting of the driver's session
def test_worker_leaves_the_list_without_waiting_for_a_submit(
    timeline: Timeline, waiters: Waiting, database_url: str
) -> None:
    worker = waiters.worker()
    timeline.ask(Statement("set lock_timeout = '100ms'", {}, nothing))
    with psycopg.connect(database_url) as other:
        other.execute("update holdfast.waiting_workers set since = null")
        assert not timeline.ask(waiting_workers.leave(worker.id))


@pytest.mark.fresh_database  # changes a setting of the driver's session
def test_worker_lists_itself_without_waiting_for_a_submit(
    timeline: Timeline, waiters: Waiting, database_url: str
) -> None:
    worker = waiters.worker()
    timeline.ask(Statement("set lock_timeout = '100ms'", {}, nothing))
    with psycopg.connect(database_url) as other:
        other.execute("update holdfast.waiting_workers set since = null")
        assert waiters.waits(worker) == Listed(waits=False, found=False)
    assert waiters.waits(worker).waits


def test_run_handed_to_a_worker_that_stops_costs_no_attempt(timeline: Timeline, waiters: Waiting) -> None:
    worker = waiters.worker()
    run = submit(timeline)
    worker.deregister(settled=True)
    timeline.rescue()
    assert timeline.worker("b").claims(run).number == 1


def test_forgotten_worker_leaves_no_row(
    timeline: Timeline, waiters: Waiting, connection: psycopg.Connection[Any]
) -> None:
    waiters.worker()
    timeline.later(hours=48)
    assert timeline.ask(worker_statements.forget(24.0)) == 1
    assert connection.execute("select count(*) from holdfast.waiting_workers").fetchone() == (0,)
