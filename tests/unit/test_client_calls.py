"""A client whose connection broke asks again for the very same runs."""

from __future__ import annotations

from typing import Any

from holdfast import task
from holdfast.client import calls
from holdfast.settings import Settings


@task("calls.noop")
def noop(n: int = 0) -> None:
    """Does nothing."""


def asked(make_op: Any) -> tuple[object, object]:
    """The ids that an operation's first statement names."""
    statement = next(make_op())
    return statement.params.get("run_id"), statement.params.get("ids")


def test_a_run_that_is_asked_for_again_has_the_same_id() -> None:
    make_op = calls.submit(Settings(), noop, {"n": 1})
    assert asked(make_op) == asked(make_op)


def test_a_batch_that_is_asked_for_again_has_the_same_ids() -> None:
    make_op = calls.submit_many(Settings(), noop, ({"n": n} for n in range(3)))
    assert asked(make_op) == asked(make_op)
    assert str(asked(make_op)[1]).count(",") == 2


def test_a_batch_of_keyed_runs_is_asked_for_again_as_it_was() -> None:
    make_op = calls.submit_many(Settings(), noop, [{"n": 1}, {"n": 2}], dedupe="active")
    assert next(make_op()).params == next(make_op()).params


def test_an_empty_batch_asks_for_nothing() -> None:
    assert list(calls.submit_many(Settings(), noop, [])()) == []
