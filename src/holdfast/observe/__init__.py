"""One seam for logs, metrics, traces and test probes: whatever happens is emitted once, and subscribers take it.

An event has a name, such as `run.settled`, and fields. Subscribers say which names they want, so that what nobody wants
costs a look into a dictionary; whoever emits in a hot loop asks `heard` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

Subscriber = Callable[[str, dict[str, Any]], None]

_subscribers: list[tuple[Subscriber, Callable[[str], bool]]] = []
_wanted: dict[str, tuple[Subscriber, ...]] = {}


def subscribe(subscriber: Subscriber, wants: Callable[[str], bool] | None = None) -> Callable[[], None]:
    """Hear what is emitted from now on, of the names that are wanted; call what is returned to stop."""
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


def heard(event: str) -> bool:
    """Whether anyone wants this event; ask before making costly fields."""
    return bool(_listeners(event))


def emit(event: str, **fields: Any) -> None:
    """Say that something happened. A subscriber that fails is passed over: telling must never undo what is told."""
    for subscriber in _listeners(event):
        with suppress(Exception):
            subscriber(event, fields)


class Span:
    """Something that takes time; set fields on it while it goes on."""

    fields: dict[str, Any]

    def __init__(self, fields: dict[str, Any]) -> None:
        object.__setattr__(self, "fields", fields)

    def __setattr__(self, name: str, value: Any) -> None:
        self.fields[name] = value


@contextmanager
def span(event: str, **fields: Any) -> Iterator[Span]:
    """Emit the event with `seconds` when the block ends, and with `error` if it ended badly."""
    one = Span(fields)
    started = perf_counter()
    try:
        yield one
    except BaseException as error:
        fields["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        emit(event, seconds=perf_counter() - started, **fields)
