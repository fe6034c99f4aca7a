"""Checks of a run's stored times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.client.verifying import timed
from holdfast.domain.records import AttemptRecord

SUBMITTED_AT = datetime(2030, 1, 1, tzinfo=UTC)


def attempt(claimed: float, started: float | None, finished: float | None) -> AttemptRecord:
    claimed_at, started_at, finished_at = (
        None if seconds is None else SUBMITTED_AT + timedelta(seconds=seconds)
        for seconds in (claimed, started, finished)
    )
    assert claimed_at is not None
    return AttemptRecord(1, "RUNNING", None, "w", "inline", claimed_at, started_at, finished_at, *[None] * 5)


@pytest.mark.parametrize("times", [(0, 0, 0), (1, 2, 3), (1, 2, None), (1, None, None)])
def test_an_attempt_whose_times_follow_each_other_is_accepted(times: tuple[float, float, float]) -> None:
    assert timed(SUBMITTED_AT, [attempt(*times)]).holds


@pytest.mark.parametrize("times", [(-1, 2, 3), (2, 1, 3), (1, 3, 2), (2, None, 1)])
def test_an_attempt_whose_times_are_out_of_order_is_reported(times: tuple[float, float, float]) -> None:
    found = timed(SUBMITTED_AT, [attempt(0, 0, 0), attempt(*times)])
    assert not found.holds
    assert "out of order" in found.detail
