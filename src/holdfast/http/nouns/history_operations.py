"""What the OpenAPI document says about the history of runs."""

from __future__ import annotations

from holdfast.http.openapi.parts import (
    RUN_ID,
    STREAM,
    WHOLE,
    Part,
    in_header,
    in_query,
    listed,
    nullable,
    operation,
    problem,
    ref,
    says,
)

AFTER = in_query("after", "Only events with a greater `seq`.", {"type": "integer", "minimum": 0})
RESUME = in_header("Last-Event-ID", "The last event that the client received.")
ENDED = says("The stream was resumed after its end.")


def _or_stream(answer: Part) -> Part:
    return answer | {"content": answer["content"] | {"text/event-stream": STREAM}}


EVENTS = operation(
    "getEvents",
    "Read the events of a run",
    "As JSON, or with `Accept: text/event-stream` as a stream: each event with its `seq` as id, and `event: end` when "
    "no more can come.",
    parameters=[RUN_ID, AFTER, RESUME],
    answers={
        200: _or_stream(says("What happened, in order.", listed(ref("Event")))),
        204: ENDED,
        404: problem("run-not-found"),
        422: problem("bad-input"),
        503: problem("too-many-streams", "database-unreachable"),
    },
)

LOGS = operation(
    "getLogs",
    "Read the log of a run",
    "As JSON, or with `Accept: text/event-stream` as a stream.",
    parameters=[
        RUN_ID,
        AFTER,
        in_query("limit", "Maximum number of lines.", {"type": "integer", "minimum": 1, "maximum": 1000}),
        RESUME,
    ],
    answers={
        200: _or_stream(says("Lines, in order.", listed(ref("LogLine"), next_after=nullable(WHOLE)))),
        204: ENDED,
        404: problem("run-not-found"),
        422: problem("bad-input"),
        503: problem("too-many-streams", "database-unreachable"),
    },
)

ATTEMPTS = operation(
    "getAttempts",
    "Read the attempts of a run",
    parameters=[RUN_ID],
    answers={200: says("In order, a live one last.", listed(ref("Attempt"))), 404: problem("run-not-found")},
)

WHY = operation(
    "explainRun",
    "Explain the state of a run",
    "The decisive reason comes first.",
    parameters=[RUN_ID],
    answers={200: says("Reasons.", listed(ref("Reason"))), 404: problem("run-not-found")},
)

PROVENANCE = operation(
    "getProvenance",
    "Read the provenance of a result",
    "What was asked, who executed it, when, with which versions, and the digest of the result.",
    parameters=[RUN_ID],
    answers={200: says("The provenance.", ref("Provenance")), 404: problem("run-not-found")},
)
