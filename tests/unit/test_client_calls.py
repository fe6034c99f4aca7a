"""A client that lost its connection repeats the same request."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import task
from holdfast.domain.errors import BadParameters
from holdfast.runtime.settings import Settings
from holdfast.verbs import submissions
from holdfast.verbs.caller import Caller
from holdfast.verbs.submissions import BATCH, FIRST_BATCH, SubmittingMany, prepare_batches

CALLER = Caller(Settings())


@task("calls.noop")
def noop(n: int = 0) -> None:
    """Does nothing."""


def requested(make_op: Any) -> tuple[object, object]:
    """Return the ids in an operation's first statement."""
    statement = next(make_op())
    return statement.params.get("run_id"), statement.params.get("ids")


def test_repeated_submission_has_the_same_id() -> None:
    make_op = submissions.submit.plan(CALLER, noop, {"n": 1})
    assert requested(make_op) == requested(make_op)


def test_repeated_batch_has_the_same_ids() -> None:
    make_op = submissions.submit_many.plan(CALLER, noop, ({"n": n} for n in range(3)))
    assert requested(make_op) == requested(make_op)
    assert str(requested(make_op)[1]).count(",") == 2


def test_repeated_batch_of_keyed_runs_is_unchanged() -> None:
    make_op = submissions.submit_many.plan(CALLER, noop, [{"n": 1}, {"n": 2}], dedupe="active")
    assert next(make_op()).params == next(make_op()).params


def test_empty_batch_sends_no_statement() -> None:
    assert list(submissions.submit_many.plan(CALLER, noop, [])()) == []


def test_only_a_repeated_request_looks_for_existing_runs() -> None:
    for make_op in (
        submissions.submit.plan(CALLER, noop, {"n": 1}),
        submissions.submit_many.plan(CALLER, noop, [{"n": n} for n in range(3)]),
    ):
        assert "on conflict" not in next(make_op()).sql
        assert "on conflict" in next(make_op()).sql


def test_batches_can_be_iterated_again_after_any_interruption() -> None:
    many = [{"n": n} for n in range(3 * BATCH + 7)]
    _, batches = prepare_batches(CALLER, noop, many)
    first = next(iter(batches))
    again = list(batches)
    assert again[0] == first
    assert again == list(batches)
    assert [len(batch) for batch in again] == [FIRST_BATCH, BATCH, BATCH, BATCH + 7 - FIRST_BATCH]
    ids = [payload.id for batch in again for payload in batch]
    assert ids == sorted(set(ids))
    assert [payload.parameters for batch in again for payload in batch] == [f'{{"n":{n}}}' for n in range(len(many))]


@pytest.mark.parametrize("count", [1, FIRST_BATCH + 1, BATCH])
def test_few_runs_are_one_batch(count: int) -> None:
    _, batches = prepare_batches(CALLER, noop, [{"n": n} for n in range(count)])
    assert [len(batch) for batch in batches] == [count]


def test_problem_in_a_later_batch_is_reported() -> None:
    many: list[Any] = [{"n": n} for n in range(2 * BATCH)]
    many[-1] = {"n": "seven"}
    _, batches = prepare_batches(CALLER, noop, many)
    with pytest.raises(BadParameters):
        list(batches)


def test_in_a_callers_transaction_all_runs_are_checked_before_any_is_written() -> None:
    many: list[Any] = [{"n": n} for n in range(2 * BATCH)]
    make_op = submissions.submit_many.plan(CALLER, noop, many)
    assert isinstance(make_op, SubmittingMany)
    make_op.at_once()
    statement = next(make_op())
    assert str(statement.params["ids"]).count(",") == 2 * BATCH - 1
    assert not statement.together
    wrong = submissions.submit_many.plan(CALLER, noop, [*many, {"n": "seven"}])
    assert isinstance(wrong, SubmittingMany)
    with pytest.raises(BadParameters):
        wrong.at_once()
