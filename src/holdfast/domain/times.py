"""Limits of stored times and durations: every client can represent the values within them.

Postgres has a larger range than Python's datetime, and adding a duration can exceed both.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, overload

EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, tzinfo=UTC)
FURTHEST = timedelta(days=36_525)
FURTHEST_SECONDS = FURTHEST.total_seconds()
# The longest duration in seconds, about 30 years: timeouts, dedupe windows, lifetimes of keys.
LONGEST_SECONDS = 1e9
START = "must be a time with its zone, from 1900 to 9998, or a timedelta of at most 100 years"


@overload
def written(at: datetime) -> str: ...
@overload
def written(at: datetime | None) -> str | None: ...
def written(at: datetime | None) -> str | None:
    """Return a time as RFC 3339 text in UTC, ending in Z; used wherever a time is shown to programs."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def is_start(value: Any) -> bool:
    """Whether this is a valid start time: a datetime with a time zone, or a timedelta from now."""
    if isinstance(value, timedelta):
        return -FURTHEST <= value <= FURTHEST
    if not isinstance(value, datetime) or value.utcoffset() is None:
        return False
    return EARLIEST <= value < LATEST


def is_duration(value: Any, *, least: float = 0.0) -> bool:
    """Whether this is a positive timedelta, or number of seconds, that can be stored."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return False
    return least <= seconds < LONGEST_SECONDS and seconds > 0
