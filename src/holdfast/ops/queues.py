"""Queues: read, pause and resume them."""

from __future__ import annotations

from holdfast.domain.errors import NotFound
from holdfast.domain.records import QueueRecord
from holdfast.sql import queues
from holdfast.sql.statement import Op


def read_queue(name: str) -> Op[QueueRecord]:
    """Return one queue. An unused name is a queue without runs."""
    found = yield from queues.read(name)
    if found is None:
        raise NotFound(f"no queue is named {name!r}")
    return found


def pause_queue(name: str, by: str, reason: str | None) -> Op[QueueRecord]:
    """Pause a queue: none of its pending runs start, and running ones continue."""
    yield from queues.pause(name, by, reason)
    return (yield from read_queue(name))


def resume_queue(name: str) -> Op[QueueRecord]:
    """Resume a queue: its runs start again."""
    yield from queues.resume(name)
    return (yield from read_queue(name))
