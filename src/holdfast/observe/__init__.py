"""One interface for logs, metrics, traces and test probes: events are emitted once, and subscribers receive them.

An event has a name, such as `run.settled`, and fields. Subscribers choose names, so an event without subscribers costs
a dictionary lookup; code in a hot loop calls `is_subscribed` before it computes fields.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

Subscriber = Callable[[str, dict[str, Any]], None]

_subscribers: list[tuple[Subscriber, Callable[[str], bool]]] = []
_wanted: dict[str, tuple[Subscriber, ...]] = {}


def subscribe(subscriber: Subscriber, wants: Callable[[str], bool] | None = None) -> Callable[[], None]:
    """Receive events whose names are wanted, from now on. Call the returned function to stop."""
    entry = (subscriber, wants or (lambda event: True))
    _subscribers.append(entry)
    _wanted.clear()

    def unsubscribe() -> None:
        if entry in _subscribers:
            _subscribers.remove(entry)
            _wanted.clear()

    return unsubscribe


def _listeners(event: str) -> tuple[Subscriber, ...]:
    found = _wanted.get(event)
    if found is None:
        found = _wanted[event] = tuple(subscriber for subscriber, wants in _subscribers if wants(event))
    return found


def is_subscribed(event: str) -> bool:
    """Whether this event has a subscriber; check this before computing expensive fields."""
    return bool(_listeners(event))


def emit(event: str, **fields: Any) -> None:
    """Emit an event. Errors of subscribers are ignored: logging must never break what it logs."""
    for subscriber in _listeners(event):
        with suppress(Exception):
            subscriber(event, fields)
