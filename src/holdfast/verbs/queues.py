"""Queues: read, pause and resume them."""

from __future__ import annotations

from functools import partial

from holdfast.documents.others import queue_document
from holdfast.domain.records import QueueRecord
from holdfast.ops import queues as ops
from holdfast.verbs import forms
from holdfast.verbs.caller import Caller
from holdfast.verbs.openapi import WITH_REASON, listed, problem, ref, says
from holdfast.verbs.verb import Endpoint, Event, Hints, MakeOp, verb


@verb(
    Endpoint("GET /queues", "runs:read", "listQueues", "List queues"),
    answers={200: says("The queues, by name.", listed(ref("Queue")))},
    form=forms.items(queue_document, queue_document.read),
)
def queues(caller: Caller, /) -> MakeOp[list[QueueRecord]]:
    """Return the queues that have live runs or are paused."""
    return ops.list_queues


@verb(
    Endpoint("GET /queues/{name}", "runs:read", "getQueue", "Read a queue"),
    answers={200: says("The queue.", ref("Queue")), 422: problem("bad-input")},
    form=forms.QUEUE,
)
def get_queue(caller: Caller, /, name: str) -> MakeOp[QueueRecord]:
    """Read one queue."""
    return partial(ops.read_queue, name)


@verb(
    Endpoint("POST /queues/{name}/pause", "operate", "pauseQueue", "Pause a queue"),
    "No run of the queue starts until it is resumed; running ones continue.",
    requestBody=WITH_REASON,
    answers={200: says("The queue is paused.", ref("Queue")), 422: problem("bad-input")},
    form=forms.QUEUE,
    event=lambda queue: Event("queue.paused", {"queue": queue.name, "reason": queue.pause_reason}),
)
def pause_queue(
    caller: Caller, /, name: str, *, by: str | None = None, reason: str | None = None
) -> MakeOp[QueueRecord]:
    """Pause a queue: no new runs start, but running ones continue. The API records the name of the token as `by`."""
    return partial(ops.pause_queue, name, by or caller.name, reason)


@verb(
    Endpoint("POST /queues/{name}/resume", "operate", "resumeQueue", "Resume a queue"),
    answers={200: says("The queue is no longer paused.", ref("Queue")), 422: problem("bad-input")},
    form=forms.QUEUE,
    event=lambda queue: Event("queue.resumed", {"queue": queue.name}),
    rings=lambda queue: Hints([queue.name]),
)
def resume_queue(caller: Caller, /, name: str) -> MakeOp[QueueRecord]:
    """Resume a queue: its runs start again."""
    return partial(ops.resume_queue, name)
