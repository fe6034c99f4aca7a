"""When to ask again: what was not answered, or refused for now, is asked again until patience ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import uniform
from time import monotonic

PASSING = frozenset({429, 502, 503, 504})
FIRST = 0.1
LONGEST = 5.0
UNTOLD = 1.0


class Patience:
    """How one request is tried: with growing, jittered pauses, or those that the server asks for."""

    def __init__(self, seconds: float) -> None:
        self._ends = monotonic() + seconds
        self._pause = FIRST

    def pause(self, headers: Mapping[str, str] | None = None) -> float | None:
        """Seconds to wait before asking again; None if that would be longer than patience lasts."""
        grown = uniform(0.5, 1.0) * self._pause
        self._pause = min(self._pause * 2, LONGEST)
        asked = asked_for(headers.get("retry-after") if headers else None)
        pause = grown if asked is None else asked + uniform(0.0, 0.2) * max(asked, grown)
        return pause if monotonic() + pause < self._ends else None


def rest(told: float | None, until: float) -> float:
    """Seconds to pause before asking again when an answer did not wait until then, as one does that had no room to."""
    return max(0.0, min(UNTOLD if told is None else told, until - monotonic()))


def asked_for(header: str | None) -> float | None:
    """What Retry-After says, in seconds or as a date."""
    if not header:
        return None
    if header.isascii() and header.isdigit():
        return float(header[:9])
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
