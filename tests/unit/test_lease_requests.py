"""Requests to end an attempt: their reason decides which exception the task gets and how the attempt ends."""

from __future__ import annotations

import pytest

from holdfast.domain.context import Assignment, RunContext
from holdfast.domain.errors import HoldfastError, RunCancelled, RunTimedOut
from holdfast.domain.reasons import CANCEL, HAND_BACK, LeaseRequest, ReasonCode, out_of_time
from holdfast.domain.settling import Failed, HandedBack, Outcome, Stopped, settle, stopped_by
from holdfast.domain.states import Status
from holdfast.domain.values import Claim
from holdfast.executors.performing import Interrupted, failed

CLAIM = Claim("run", 1, 0, "task", "default", "{}", b"", None, 0, 0.0, None, None, 0, "now")
TIMED_OUT = {"class": "RunTimedOut", "message": "the run took longer than its timeout of 2 s", "traceback": None}


@pytest.mark.parametrize(
    ("request_", "outcome", "raised", "status"),
    [
        (CANCEL, Stopped(1.0), RunCancelled, Status.CANCELLED),
        (HAND_BACK, HandedBack(1.0), HoldfastError, None),
        (out_of_time(2), Failed(TIMED_OUT, reason=ReasonCode.TIMEOUT, elapsed=1.0), RunTimedOut, None),
    ],
)
def test_reason_of_a_request_decides_how_the_attempt_ends(
    request_: LeaseRequest, outcome: Outcome, raised: type[Exception], status: Status | None
) -> None:
    assert stopped_by(request_, 1.0) == outcome
    settlement = settle(CLAIM, outcome, 0.5)
    assert (settlement.outcome, settlement.reason) == (status, request_.reason)
    context = RunContext(None, Assignment("run", 1, "task", {}, "", None, None))  # type: ignore[arg-type]
    context.ask_to_stop(request_)
    with pytest.raises(raised):
        context.check()


def test_first_request_to_end_an_attempt_wins() -> None:
    context = RunContext(None, Assignment("run", 1, "task", {}, "", None, None))  # type: ignore[arg-type]
    context.ask_to_stop(CANCEL)
    context.ask_to_stop(out_of_time(1))
    assert isinstance(failed(context, None, Interrupted(), 0.0), Stopped)


def test_error_of_a_task_that_was_not_asked_to_stop_is_a_failure() -> None:
    context = RunContext(None, Assignment("run", 1, "task", {}, "", None, None))  # type: ignore[arg-type]
    assert isinstance(failed(context, None, RunCancelled("its own"), 0.0), Failed)
