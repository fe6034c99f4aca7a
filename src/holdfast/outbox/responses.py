"""What a response means for a delivery: delivered, retry later, give up, or pause the subscription."""

from __future__ import annotations

import email.utils
from datetime import UTC, datetime
from typing import NamedTuple

# Seconds before the second, third, ... attempt of a webhook: over three days in total, as Standard Webhooks suggests.
SCHEDULE = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
JITTER = 0.1
LONGEST = 86_400.0
GONE = 410


class Answer(NamedTuple):
    """The result of sending. `retry_after` is the number of seconds the receiver requested to wait."""

    ok: bool
    code: int | None = None
    error: str | None = None
    retry_after: float | None = None


def readable(text: str) -> str:
    """Replace unprintable characters in a receiver's message with spaces: the database rejects some of them."""
    return "".join(c if c.isprintable() else " " for c in text)


def delay_of(attempts: int, answer: Answer, random: float) -> float | None:
    """Return the seconds until the next attempt of a webhook after `attempts` attempts; None to give up."""
    if attempts >= len(SCHEDULE):
        return None
    own = SCHEDULE[attempts] * (1 + JITTER * (2 * random - 1))
    return min(max(own, answer.retry_after or 0.0), LONGEST)


def stream_delay_of(attempts: int, random: float) -> float:
    """Return the seconds until the next attempt of a stream, which is never given up."""
    return float(min(60, 2 ** min(attempts, 6))) * (1 + JITTER * (2 * random - 1))


def retry_after_of(header: str | None, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header requests, as a number or as a date."""
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
