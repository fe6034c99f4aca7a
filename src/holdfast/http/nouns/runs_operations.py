"""What the OpenAPI document says about runs and how they end."""

from __future__ import annotations

from holdfast.domain.states import Status
from holdfast.http.openapi.parts import (
    ID,
    NO_FIELDS,
    REASON,
    RETRY_AFTER,
    RUN_ID,
    TEXT,
    header,
    in_header,
    in_query,
    json_request,
    link,
    listed,
    nullable,
    operation,
    problem,
    record,
    ref,
    says,
)

RUN = ref("Run")
KEY = in_header(
    "Idempotency-Key",
    "1 to 255 visible ASCII characters, quoted or unquoted. The same key and payload return the same run.",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
)
ETAG = {"ETag": header("The version of this document.")}
STOP = json_request(REASON, required=False)
NOTHING = json_request(NO_FIELDS, required=False)
EXAMPLE = {"model": "mock", "parameters": {"seconds": 0.1, "steps": 2}}

NEXT = {
    name: link(target, about, run_id="$response.body#/run_id")
    for name, target, about in (
        ("run", "getRun", "The run itself."),
        ("result", "getResult", "Its result, if it has succeeded."),
        ("cancel", "cancelRun", "Ask it to stop."),
        ("retry", "retryRun", "Reopen it, if it has failed or was cancelled."),
        ("events", "getEvents", "What happened to it."),
        ("attempts", "getAttempts", "Its attempts."),
        ("logs", "getLogs", "Its log."),
        ("why", "explainRun", "Why it is in its current state."),
        ("provenance", "getProvenance", "The provenance of its result."),
    )
}

SUBMIT = operation(
    "submitRun",
    "Submit a run",
    "Makes a run, or finds the one that the same key made before. Without a key, a PENDING or RUNNING run with the "
    "same payload made in the last minutes is found too, unless `dedupe` says otherwise.",
    parameters=[KEY],
    requestBody=json_request(ref("RunRequest"), example=EXAMPLE),
    answers={
        201: says("The run was made.", RUN, headers={"Location": header("The path of the run."), **ETAG}, links=NEXT),
        200: says(
            "The run existed already.",
            RUN,
            headers={
                "Location": header("The path of the run."),
                "Idempotent-Replayed": header("Always `true`.", {"type": "string", "enum": ["true"]}),
                **ETAG,
            },
            links=NEXT,
        ),
        400: problem("not-json", "bad-key", "bad-digest", "bad-request"),
        409: problem("key-reused"),
        413: problem("body-too-large"),
        415: problem("unsupported-media-type"),
        422: problem("bad-input", "unknown-model", "bad-parameters", "refused-value"),
        503: problem("database-unreachable", "database-read-only", "database-busy", headers=RETRY_AFTER),
    },
)

SUBMIT_BATCH = operation(
    "submitRuns",
    "Submit several runs",
    "All of them are made or none. Each may have a `key` or a `dedupe` of its own; without one, each makes a run. "
    "Keys are per run (`runs[].key`), so an `Idempotency-Key` is refused.",
    requestBody=json_request(
        {
            "type": "object",
            "required": ["runs"],
            "properties": {"runs": {"type": "array", "items": ref("RunRequest"), "minItems": 1, "maxItems": 1000}},
            "additionalProperties": False,
        },
        example={"runs": [EXAMPLE]},
    ),
    answers={
        status: says(about, listed(record("One answer.", {"created": {"type": "boolean"}, "run": RUN})))
        for status, about in ((201, "At least one run was made."), (200, "All of them existed already."))
    }
    | {
        400: problem("not-json", "bad-key", "bad-digest", "bad-request"),
        409: problem("key-reused"),
        413: problem("body-too-large"),
        415: problem("unsupported-media-type"),
        422: problem("bad-input", "refused-value"),
        503: problem("database-unreachable", "database-read-only", "database-busy", headers=RETRY_AFTER),
    },
)

LIST = operation(
    "listRuns",
    "List runs",
    "Newest first, in pages. `next_cursor` is null on the last page; earlier pages may be short, or even empty.",
    parameters=[
        in_query("status", "Only runs of this status.", {"type": "string", "enum": [str(status) for status in Status]}),
        in_query("model", "Only runs of this task.", TEXT),
        in_query("queue", "Only runs of this queue.", TEXT),
        in_query("tag", "Only runs with this tag.", TEXT),
        in_query("job_id", "Only runs of this job.", ID),
        in_query("cursor", "Continue after this `next_cursor`.", ID),
        in_query("limit", "Maximum number of items.", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
    ],
    answers={
        200: says(
            "A page.",
            listed(RUN, next_cursor=nullable(ID)),
            headers={"Link": header("The next page, if there is one (RFC 8288).")},
            links={"next": link("listRuns", "The next page.", cursor="$response.body#/next_cursor")},
        ),
        422: problem("bad-input"),
    },
)

SHOW = operation(
    "getRun",
    "Read a run",
    "With `wait`, answers when the run has ended or the time is over; with `If-None-Match` too, at any change, or 304.",
    parameters=[
        RUN_ID,
        in_query("wait", "Seconds to wait, at most 60.", {"type": "number", "minimum": 0, "maximum": 60}),
        in_header("If-None-Match", "The version that the client has."),
        in_header("Prefer", "`wait=20` is the same as `?wait=20`."),
    ],
    answers={
        200: says("The run.", RUN, headers={**ETAG, **RETRY_AFTER}),
        304: says("The document has not changed.", headers=ETAG),
        404: problem("run-not-found"),
        422: problem("bad-input"),
    },
)

RESULT = operation(
    "getResult",
    "Read a result",
    "The value that the task returned, without an envelope.",
    parameters=[RUN_ID, in_header("If-None-Match", "The version that the client has.")],
    answers={
        200: says(
            "The result.",
            {},
            headers={**ETAG, "Repr-Digest": header("The SHA-256 of the answer's bytes (RFC 9530).")},
        ),
        304: says("The document has not changed.", headers=ETAG),
        404: problem("run-not-found"),
        409: problem("run-not-finished", "run-failed", "run-cancelled", headers=RETRY_AFTER),
        410: problem("result-pruned"),
        503: problem("too-many-streams", "database-unreachable", headers=RETRY_AFTER),
    },
)

CANCEL = operation(
    "cancelRun",
    "Cancel a run",
    "A pending run ends at once. A running one is asked to stop, and will then end CANCELLED and in no other way.",
    parameters=[RUN_ID],
    requestBody=STOP,
    answers={
        200: says("The run is cancelled.", RUN, links=NEXT),
        202: says("The run was asked to stop.", RUN, links=NEXT),
        404: problem("run-not-found"),
        409: problem("run-ended"),
        422: problem("bad-input"),
    },
)

RETRY = operation(
    "retryRun",
    "Retry a run",
    "Reopens a FAILED or CANCELLED run: it is PENDING again, with its whole budget of attempts.",
    parameters=[RUN_ID],
    requestBody=NOTHING,
    answers={
        200: says("The run is pending again.", RUN, links=NEXT),
        404: problem("run-not-found"),
        409: problem("run-ended", "job-ended"),
    },
)
