"""One seam for logs, metrics, traces and test probes: whatever happens is emitted once, and subscribers take it.

An event has a name and fields. Without a subscriber it costs a function call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

Subscriber = Callable[[str, dict[str, Any]], None]

_subscribers: list[Subscriber] = []


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Hear everything that is emitted from now on; call what is returned to stop."""
    _subscribers.append(subscriber)

    def unsubscribe() -> None:
        if subscriber in _subscribers:
            _subscribers.remove(subscriber)

    return unsubscribe


def emit(event: str, **fields: Any) -> None:
    """Say that something happened."""
    for subscriber in tuple(_subscribers):
        subscriber(event, fields)


def heard() -> bool:
    """Whether anyone listens; ask before building costly fields."""
    return bool(_subscribers)


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
