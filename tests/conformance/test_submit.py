"""Submitting: a run is stored unchanged, once, and only if the caller's transaction commits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.errors import RunNotFound
from holdfast.domain.values import NewRun, Payload
from holdfast.sql import tallies
from tests.conformance.drivers import Driver, RolledBack
from tests.timeline import Timeline, new_run

PARAMETERS = {
    "text": 'quote " backslash \\ brace } null',
    "emoji": "\U0001f40b",
    "list": [1, 2.5, None, True],
    "big": 2**63,
}


@pytest.mark.every_driver
def test_submitted_run_is_read_back_unchanged(timeline: Timeline) -> None:
    new = new_run(
        PARAMETERS,
        queue="models",
        priority=-7,
        tags=("a b", 'c"d'),
        submitted_by="ada",
        concurrency_key="one at a time",
    )
    answer = timeline.perform(lambda: ops.submit(new))
    assert answer.created
    run = timeline.get(new.id)
    assert (run.status, run.parameters, run.payload_hash) == ("PENDING", PARAMETERS, new.payload_hash)
    assert (run.queue, run.priority, run.tags, run.submitted_by) == ("models", -7, ("a b", 'c"d'), "ada")
    assert (run.attempt_count, run.max_attempts, run.concurrency_key) == (0, 3, "one at a time")
    assert run.created_at.tzinfo is not None
    assert answer.run == run


@pytest.mark.every_driver
def test_submitting_twice_with_one_id_creates_one_run(timeline: Timeline) -> None:
    new = new_run({"n": 1})
    first = timeline.perform(lambda: ops.submit(new))
    again = timeline.perform(lambda: ops.submit(replace(new, parameters='{"n": 2}')))
    assert (first.created, again.created) == (True, False)
    assert again.run.parameters == {"n": 1}
    assert timeline.ask(tallies.totals())["work", "created", 0][0] == 1


@pytest.mark.every_driver
def test_submit_many_returns_runs_in_the_given_order(timeline: Timeline) -> None:
    known = new_run({"n": "known"}, key="k", dedupe="active")
    timeline.perform(lambda: ops.submit(known))
    many = [
        new_run({"n": 1}),
        new_run({"n": "known"}, key="k"),
        new_run({"n": 2}, queue="other"),
        new_run({"n": 3}),
        new_run({"n": "known"}, dedupe="active"),
    ]
    answers = timeline.perform(lambda: ops.submit_many(many))
    assert [answer.run.id for answer in answers] == [many[0].id, known.id, many[2].id, many[3].id, known.id]
    assert [answer.created for answer in answers] == [True, False, True, True, False]
    assert timeline.get(many[2].id).queue == "other"


def test_repeated_submit_many_finds_the_same_runs(timeline: Timeline) -> None:
    many = [new_run({"n": n}) for n in range(4)]
    timeline.perform(lambda: ops.submit_many(many[:2]))
    answers = timeline.perform(lambda: ops.submit_many(many))
    assert [answer.run.id for answer in answers] == [new.id for new in many]
    assert [answer.created for answer in answers] == [False, False, True, True]
    assert [answer.run.parameters for answer in answers] == [{"n": n} for n in range(4)]
    assert timeline.ask(tallies.totals())["work", "created", 0][0] == 4


def test_batch_of_one_task_needs_one_statement(timeline: Timeline) -> None:
    many = [new_run({"n": n}) for n in range(500)]
    op = ops.submit_many(many)
    statements = []

    def counted() -> object:
        rows = None
        while True:
            try:
                statement = op.send(rows) if rows is not None else next(op)
            except StopIteration as done:
                return done.value
            statements.append(statement)
            rows = yield statement

    answers = timeline.perform(counted)
    assert len(statements) == 1
    assert [answer.run.id for answer in answers] == [new.id for new in many]


def batches_of(*numbers: list[int]) -> tuple[NewRun, list[list[Payload]]]:
    """Return a head, and batches of payloads for runs like it."""
    made = [[new_run({"n": n}) for n in batch] for batch in numbers]
    return made[0][0], [[Payload(new.id, new.parameters, new.payload_hash) for new in batch] for batch in made]


@pytest.mark.every_driver
def test_batches_are_returned_in_order_and_repeated_ones_are_found(
    timeline: Timeline, connection: psycopg.Connection
) -> None:
    head, batches = batches_of([0, 1], [2], [3, 4])
    first = timeline.perform(lambda: ops.submit_batches(head, batches[:2], together=True, again=False))
    assert [answer.created for answer in first] == [True] * 3
    assert connection.execute("select count(*) from holdfast.runs").fetchone() == (3,)
    answers = timeline.perform(lambda: ops.submit_batches(head, batches, together=True))
    assert [answer.run.parameters for answer in answers] == [{"n": n} for n in range(5)]
    assert [answer.created for answer in answers] == [False, False, False, True, True]
    assert timeline.ask(tallies.totals())["work", "created", 0][0] == 5


def test_failed_batch_rolls_back_the_batches_before_and_after(
    timeline: Timeline, connection: psycopg.Connection
) -> None:
    head, batches = batches_of([0, 1], [2], [3, 4])
    batches[1].append(Payload(batches[0][0].id, "{}", head.payload_hash))
    with pytest.raises(Exception, match="duplicate key"):
        timeline.perform(lambda: ops.submit_batches(head, batches, together=True, again=False))
    assert connection.execute("select count(*) from holdfast.runs").fetchone() == (0,)
    assert timeline.perform(lambda: ops.submit_batches(head, batches[2:], together=False, again=False))[1].created


@pytest.mark.every_driver
@pytest.mark.parametrize("relative", [True, False])
def test_run_with_a_later_start_waits(timeline: Timeline, relative: bool) -> None:
    when = timedelta(minutes=5) if relative else timeline.now() + timedelta(minutes=5)
    run = timeline.submit(run_after=when)
    worker = timeline.worker("a", lease=timedelta(hours=1))
    assert timeline.get(run).reason == "scheduled"
    assert timeline.promote() == 0
    assert worker.claim() == []
    timeline.later(minutes=5)
    assert timeline.promote() == 1
    worker.claims(run)


def test_start_time_in_the_past_means_now(timeline: Timeline) -> None:
    run = timeline.submit(run_after=timeline.now() - timedelta(days=1))
    timeline.worker("a").claims(run)


@pytest.mark.every_driver
@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"dedupe": "active"}])
def test_run_exists_once_the_callers_transaction_commits(
    timeline: Timeline, driver: Driver, connection: psycopg.Connection, options: dict[str, str]
) -> None:
    new = new_run(**options)
    with driver.borrow() as run:
        assert run(ops.submit(new)).created
        assert run(ops.get(new.id)).status == "PENDING"
        assert connection.execute("select count(*) from holdfast.runs").fetchone() == (0,)
    timeline.worker("a").claims(new.id)


@pytest.mark.every_driver
@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"dedupe": "active"}])
def test_rolled_back_transaction_leaves_no_run(
    timeline: Timeline, driver: Driver, connection: psycopg.Connection, options: dict[str, str]
) -> None:
    new = new_run(**options)
    with suppress(RolledBack), driver.borrow() as run:
        run(ops.submit(new))
        raise RolledBack
    with pytest.raises(RunNotFound):
        timeline.get(new.id)
    for table in ("runs", "ready", "idempotency_keys", "tallies"):
        assert connection.execute(f"select count(*) from holdfast.{table}").fetchone() == (0,)
    assert timeline.perform(lambda: ops.submit(new)).created
