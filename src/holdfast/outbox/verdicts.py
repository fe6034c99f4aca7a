"""What an answer means for a delivery: done, later, never, or the receiver wants nothing more."""

from __future__ import annotations

import email.utils
from datetime import UTC, datetime
from typing import NamedTuple

# Seconds before the second, third, ... try of a webhook: over three days in all, as Standard Webhooks suggests.
SCHEDULE = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
JITTER = 0.1
LONGEST = 86_400.0
GONE = 410


class Answer(NamedTuple):
    """What a sink met. `retry_after` is how many seconds the receiver asked to be left alone."""

    ok: bool
    code: int | None = None
    error: str | None = None
    retry_after: float | None = None


def readable(text: str) -> str:
    """What a receiver said, with a space for each character that nobody can read: the database refuses some of them."""
    return "".join(c if c.isprintable() else " " for c in text)


def delay_of(attempts: int, answer: Answer, random: float) -> float | None:
    """Seconds until a webhook is tried again after `attempts` earlier tries; None when it is time to give up."""
    if attempts >= len(SCHEDULE):
        return None
    own = SCHEDULE[attempts] * (1 + JITTER * (2 * random - 1))
    return min(max(own, answer.retry_after or 0.0), LONGEST)


def stream_delay_of(attempts: int, random: float) -> float:
    """Seconds until a stream is tried again: Redis comes back, however long it takes."""
    return float(min(60, 2 ** min(attempts, 6))) * (1 + JITTER * (2 * random - 1))


def retry_after_of(header: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks for, given as a number or as a date."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST)
    try:
        then = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return min(max((then - now).total_seconds(), 0.0), LONGEST)
