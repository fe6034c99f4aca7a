"""When to retry a request: if there was no response or a temporary refusal, until the time for retries has passed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from random import uniform
from time import monotonic

from holdfast.outbox.responses import retry_after_of

PASSING = frozenset({429, 502, 503, 504})
FIRST = 0.1
LONGEST = 5.0
DEFAULT = 1.0


class Retries:
    """The retries of one request, with growing, jittered pauses, or the pauses that the server requests."""

    def __init__(self, seconds: float) -> None:
        self._ends = monotonic() + seconds
        self._pause = FIRST

    def pause(self, headers: Mapping[str, str] | None = None) -> float | None:
        """Seconds to wait before the next try; None if the time for retries will have passed by then."""
        grown = uniform(0.5, 1.0) * self._pause
        self._pause = min(self._pause * 2, LONGEST)
        asked = retry_after(headers)
        pause = grown if asked is None else asked + uniform(0.0, 0.2) * max(asked, grown)
        return pause if monotonic() + pause < self._ends else None


def pause_before_next_wait(asked: float | None, until: float) -> float:
    """Seconds to pause after a long poll that the server answered before `until` because it was at capacity."""
    return max(0.0, min(DEFAULT if asked is None else asked, until - monotonic()))


def retry_after(headers: Mapping[str, str] | None) -> float | None:
    """The seconds until the time in Retry-After, which is a number of seconds or a date."""
    return retry_after_of(headers.get("retry-after") if headers else None, datetime.now(UTC))
