"""Queues: read, pause and resume them."""

from __future__ import annotations

from holdfast.domain.records import QueueRecord
from holdfast.sql import queues
from holdfast.sql.statement import Op, as_operation

list_queues = as_operation(queues.listing)
read_queue = as_operation(queues.read)


def pause_queue(name: str, by: str, reason: str | None) -> Op[QueueRecord]:
    """Pause a queue: none of its pending runs start, and running ones continue."""
    yield from queues.pause(name, by, reason)
    return (yield from read_queue(name))


def resume_queue(name: str) -> Op[QueueRecord]:
    """Resume a queue: its runs start again."""
    yield from queues.resume(name)
    return (yield from read_queue(name))
