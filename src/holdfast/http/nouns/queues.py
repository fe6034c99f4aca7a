"""Queues: see what waits, pause, resume."""

from __future__ import annotations

from functools import partial

from holdfast.documents.others import queue_document
from holdfast.domain.errors import Problem
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, items
from holdfast.http.call import Call
from holdfast.http.openapi.parts import (
    NO_FIELDS,
    REASON,
    in_path,
    json_request,
    listed,
    operation,
    problem,
    ref,
    says,
)
from holdfast.http.routes import Noun, Route
from holdfast.http.telling import tell
from holdfast.ops.queues import pause_queue, read_queue, resume_queue


def index(call: Call) -> Answer:
    reading.query(call)
    return items([queue_document(queue) for queue in call.service.database.queues()])


def show(call: Call, name: str) -> Answer:
    reading.query(call)
    return answer(queue_document(call.service.database.perform(partial(read_queue, _checked(name)))))


def pause(call: Call, name: str) -> Answer:
    here = call.service
    reading.query(call)
    said = reading.optional_object(call, ("reason",))
    reason = reading.short_text(said.get("reason"), "/reason")
    paused = here.database.perform(partial(pause_queue, _checked(name), call.principal.name, reason))
    tell("queue.paused", call, queue=name, reason=reason)
    return answer(queue_document(paused))


def resume(call: Call, name: str) -> Answer:
    here = call.service
    reading.query(call)
    reading.optional_object(call, ())
    resumed = here.database.perform(partial(resume_queue, _checked(name)))
    here.database.ring((name,))
    tell("queue.resumed", call, queue=name)
    return answer(queue_document(resumed))


def _checked(name: str) -> str:
    if not 1 <= len(name) <= 255 or "\0" in name:
        raise reading.refused([Problem("/name", "must be 1 to 255 characters")])
    return name


NAME = in_path("name", "The name of a queue.", {"type": "string", "minLength": 1, "maxLength": 255})
STOP = json_request(REASON, required=False)
NOTHING = json_request(NO_FIELDS, required=False)

NOUN = Noun(
    "queues",
    "Queues: where runs wait.",
    [
        Route(
            "GET",
            "/queues",
            index,
            "runs:read",
            operation("listQueues", "List queues", answers={200: says("By name.", listed(ref("Queue")))}),
        ),
        Route(
            "GET",
            "/queues/{name}",
            show,
            "runs:read",
            operation(
                "getQueue",
                "Read a queue",
                parameters=[NAME],
                answers={200: says("The queue.", ref("Queue")), 422: problem("bad-input")},
            ),
        ),
        Route(
            "POST",
            "/queues/{name}/pause",
            pause,
            "operate",
            operation(
                "pauseQueue",
                "Pause a queue",
                "No run of the queue starts until it is resumed; running ones continue.",
                parameters=[NAME],
                requestBody=STOP,
                answers={200: says("It is paused.", ref("Queue")), 422: problem("bad-input")},
            ),
        ),
        Route(
            "POST",
            "/queues/{name}/resume",
            resume,
            "operate",
            operation(
                "resumeQueue",
                "Resume a queue",
                parameters=[NAME],
                requestBody=NOTHING,
                answers={200: says("It is open.", ref("Queue")), 422: problem("bad-input")},
            ),
        ),
    ],
)
