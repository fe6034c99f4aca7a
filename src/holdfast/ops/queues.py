"""Queues: pause and resume them, and say how they stand afterwards."""

from __future__ import annotations

from holdfast.domain.errors import NotFound
from holdfast.domain.records import QueueRecord
from holdfast.sql import queues
from holdfast.sql.statement import Op


def read_queue(name: str) -> Op[QueueRecord]:
    """One queue. A name that nothing is known of is a queue without runs."""
    found = yield from queues.read(name)
    if found is None:
        raise NotFound(f"no queue is named {name!r}")
    return found


def pause_queue(name: str, by: str, reason: str | None) -> Op[QueueRecord]:
    """Let no run of this queue start. Running ones go on."""
    yield from queues.pause(name, by, reason)
    return (yield from read_queue(name))


def resume_queue(name: str) -> Op[QueueRecord]:
    """Let the runs of this queue start again."""
    yield from queues.resume(name)
    return (yield from read_queue(name))
