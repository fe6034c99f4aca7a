"""A client whose connection broke asks again for the very same runs."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import task
from holdfast.client.requests import BATCH, prepare_batches
from holdfast.domain.errors import BadParameters
from holdfast.runtime.settings import Settings
from holdfast.verbs import submissions
from holdfast.verbs.caller import Caller
from holdfast.verbs.submissions import SubmittingMany

CALLER = Caller(Settings())


@task("calls.noop")
def noop(n: int = 0) -> None:
    """Does nothing."""


def asked(make_op: Any) -> tuple[object, object]:
    """The ids that an operation's first statement names."""
    statement = next(make_op())
    return statement.params.get("run_id"), statement.params.get("ids")


def test_a_run_that_is_asked_for_again_has_the_same_id() -> None:
    make_op = submissions.submit.plan(CALLER, noop, {"n": 1})
    assert asked(make_op) == asked(make_op)


def test_a_batch_that_is_asked_for_again_has_the_same_ids() -> None:
    make_op = submissions.submit_many.plan(CALLER, noop, ({"n": n} for n in range(3)))
    assert asked(make_op) == asked(make_op)
    assert str(asked(make_op)[1]).count(",") == 2


def test_a_batch_of_keyed_runs_is_asked_for_again_as_it_was() -> None:
    make_op = submissions.submit_many.plan(CALLER, noop, [{"n": 1}, {"n": 2}], dedupe="active")
    assert next(make_op()).params == next(make_op()).params


def test_an_empty_batch_asks_for_nothing() -> None:
    assert list(submissions.submit_many.plan(CALLER, noop, [])()) == []


def test_only_a_repeated_try_looks_for_what_the_first_made() -> None:
    for make_op in (
        submissions.submit.plan(CALLER, noop, {"n": 1}),
        submissions.submit_many.plan(CALLER, noop, [{"n": n} for n in range(3)]),
    ):
        assert "on conflict" not in next(make_op()).sql
        assert "on conflict" in next(make_op()).sql


def test_batches_can_be_gone_through_again_wherever_the_first_time_ended() -> None:
    many = [{"n": n} for n in range(3 * BATCH + 7)]
    _, batches = prepare_batches(Settings(), noop, many)
    first = next(iter(batches))
    again = list(batches)
    assert again[0] == first
    assert again == list(batches)
    assert [len(batch) for batch in again] == [BATCH, BATCH, BATCH, 7]
    ids = [payload.id for batch in again for payload in batch]
    assert ids == sorted(set(ids))
    assert [payload.parameters for batch in again for payload in batch] == [f'{{"n":{n}}}' for n in range(len(many))]


def test_what_is_wrong_in_a_later_batch_is_told() -> None:
    many: list[Any] = [{"n": n} for n in range(2 * BATCH)]
    many[-1] = {"n": "seven"}
    _, batches = prepare_batches(Settings(), noop, many)
    with pytest.raises(BadParameters):
        list(batches)


def test_in_somebody_elses_transaction_all_are_checked_before_any_is_written() -> None:
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
