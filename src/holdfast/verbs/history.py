"""What happened to a run, and why: events, attempts, logs, the reason it waits, the provenance of its result."""

from __future__ import annotations

from functools import partial

from holdfast import ops
from holdfast.documents.others import provenance_document, read_reason, reason_document
from holdfast.documents.runs import attempt_document, event_document, log_document
from holdfast.documents.shapes import WHOLE, Part, nullable
from holdfast.domain.records import AttemptRecord, EventRecord, LogRecord, Provenance, Reason
from holdfast.ops import history
from holdfast.sql.statement import Op
from holdfast.verbs import forms
from holdfast.verbs.caller import Caller
from holdfast.verbs.openapi import STREAM, in_header, in_query, listed, problem, ref, says
from holdfast.verbs.subjects import run_id
from holdfast.verbs.verb import Endpoint, MakeOp, verb

AFTER = in_query("after", "Only events with a greater `seq`.", {"type": "integer", "minimum": 0})
RESUME = in_header("Last-Event-ID", "The last event that the client received.")
STREAMED = {
    204: says("The stream was resumed after its end."),
    422: problem("bad-input"),
    503: problem("too-many-streams", "database-unreachable"),
}


def _or_stream(answer: Part) -> Part:
    return answer | {"content": answer["content"] | {"text/event-stream": STREAM}}


@verb(
    Endpoint("GET /runs/{run_id}/events", "runs:read", "getEvents", "Read the events of a run"),
    "As JSON, or with `Accept: text/event-stream` as a stream: each event with its `seq` as id, and "
    "`event: end` after the last one.",
    parameters=[AFTER, RESUME],
    answers={200: _or_stream(says("The events, in order.", listed(ref("Event")))), **STREAMED},
    form=forms.items(event_document, event_document.read),
)
def events(caller: Caller, /, run: object, after: int = 0) -> MakeOp[list[EventRecord]]:
    """Return what happened to a run, in order."""
    return partial(ops.events, run_id(run), after)


@verb(
    Endpoint("GET /runs/{run_id}/attempts", "runs:read", "getAttempts", "Read the attempts of a run"),
    answers={200: says("The attempts, in order; a running one comes last.", listed(ref("Attempt")))},
    form=forms.items(attempt_document, attempt_document.read),
)
def attempts(caller: Caller, /, run: object) -> MakeOp[list[AttemptRecord]]:
    """Return the attempts of a run."""
    return partial(ops.attempts, run_id(run))


@verb(
    Endpoint("GET /runs/{run_id}/logs", "runs:read", "getLogs", "Read the log of a run"),
    "As JSON, or with `Accept: text/event-stream` as a stream.",
    parameters=[
        AFTER,
        in_query("limit", "Maximum number of lines.", {"type": "integer", "minimum": 1, "maximum": 1000}),
        RESUME,
    ],
    answers={
        200: _or_stream(says("The lines, in order.", listed(ref("LogLine"), next_after=nullable(WHOLE)))),
        **STREAMED,
    },
    form=forms.items(log_document, log_document.read),
)
def logs(caller: Caller, /, run: object, after: int = 0) -> MakeOp[list[LogRecord]]:
    """Return the log of a run after a given line, at most a thousand lines per call."""
    return partial(_logs, run_id(run), after)


def _logs(run_id: str, after: int) -> Op[list[LogRecord]]:
    _, found = yield from history.logs_and_run(run_id, after)
    return found


@verb(
    Endpoint("GET /runs/{run_id}/why", "runs:read", "explainRun", "Explain the state of a run"),
    "The decisive reason comes first.",
    answers={200: says("Reasons.", listed(ref("Reason")))},
    form=forms.items(reason_document, read_reason),
)
def why(caller: Caller, /, run: object) -> MakeOp[list[Reason]]:
    """Return what a run is waiting for, the decisive reason first."""
    return partial(ops.explain, run_id(run))


@verb(
    Endpoint("GET /runs/{run_id}/provenance", "runs:read", "getProvenance", "Read the provenance of a result"),
    "What was requested, which worker executed it, when and with which versions, and the digest of the result.",
    answers={200: says("The provenance.", ref("Provenance"))},
    form=forms.document(provenance_document, dict),
)
def provenance(caller: Caller, /, run: object) -> MakeOp[Provenance]:
    """Return what was requested, which worker executed it, and the digest of the result."""
    return partial(history.provenance_of, run_id(run))
