"""The bounds of what is stored about time: everything that reads it can represent what lies within.

Postgres reaches further than Python's datetime does, and adding to a time may leave both.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, tzinfo=UTC)
FURTHEST = timedelta(days=36_525)
# The longest duration in seconds, about 30 years: time limits, windows, how long a key is kept.
LONGEST_SECONDS = 1e9
START = "must be a time with its zone, from 1900 to 9998, or a timedelta of at most 100 years"


def written(at: datetime) -> str:
    """A time as RFC 3339 text in UTC, ending in Z; the same wherever a time is shown to programs."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def is_start(value: Any) -> bool:
    """Whether a run may be put off until then: a time with its zone, or a timedelta from now."""
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
