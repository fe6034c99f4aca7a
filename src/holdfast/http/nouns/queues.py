"""Queues: see what waits, pause, resume."""

from __future__ import annotations

from functools import partial

from flask import Response

from holdfast.domain.errors import Problem
from holdfast.http import reading
from holdfast.http.answers import answer, items
from holdfast.http.documents import queue_document
from holdfast.http.guard import principal
from holdfast.http.openapi.parts import in_path, json_request, listed, nullable, operation, problem, ref, says
from holdfast.http.routes import Noun, Route
from holdfast.http.service import service
from holdfast.ops.queues import pause_queue, read_queue, resume_queue


def index() -> Response:
    reading.query()
    return items([queue_document(queue) for queue in service().database.queues()])


def show(name: str) -> Response:
    reading.query()
    return answer(queue_document(service().database.perform(partial(read_queue, _checked(name)))))


def pause(name: str) -> Response:
    here = service()
    reading.query()
    said = reading.optional_object(here.settings, ("reason",))
    reason = reading.short_text(said.get("reason"), "/reason")
    paused = here.database.perform(partial(pause_queue, _checked(name), principal().name, reason))
    return answer(queue_document(paused))


def resume(name: str) -> Response:
    here = service()
    reading.query()
    reading.optional_object(here.settings, ())
    resumed = here.database.perform(partial(resume_queue, _checked(name)))
    here.database.ring((name,))
    return answer(queue_document(resumed))


def _checked(name: str) -> str:
    if not 1 <= len(name) <= 255 or "\0" in name:
        raise reading.refused([Problem("/name", "must be 1 to 255 characters")])
    return name


NAME = in_path("name", "The name of a queue.", {"type": "string", "minLength": 1, "maxLength": 255})
REASON = json_request(
    {
        "type": "object",
        "properties": {"reason": nullable({"type": "string", "minLength": 1, "maxLength": 255})},
        "additionalProperties": False,
    },
    required=False,
)
NOTHING = json_request({"type": "object", "properties": {}, "additionalProperties": False}, required=False)

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
                "None of its runs starts until it is resumed; running ones go on.",
                parameters=[NAME],
                requestBody=REASON,
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
