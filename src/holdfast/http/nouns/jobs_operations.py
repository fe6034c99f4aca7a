"""What the OpenAPI document says about jobs."""

from __future__ import annotations

from holdfast.domain.states import Status
from holdfast.http.openapi.parts import (
    ID,
    NO_FIELDS,
    REASON,
    RETRY_AFTER,
    TEXT,
    WHOLE,
    header,
    in_header,
    in_path,
    in_query,
    json_request,
    link,
    listed,
    nullable,
    operation,
    problem,
    ref,
    says,
    short_text,
)

JOB = ref("Job")
KEY = in_header(
    "Idempotency-Key",
    "1 to 255 visible ASCII characters, quoted or unquoted. The same key and request return the same job.",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
)
JOB_ID = in_path("job_id", "The id of a job.", ID)
CURSOR = in_query("cursor", "Continue after this `next_cursor`.", ID)
LIMIT = in_query("limit", "Maximum number of items.", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50})
PAGE = {"Link": header("The next page, if there is one (RFC 8288).")}
ETAG = {"ETag": header("The version of this document.")}
STOP = json_request(REASON, required=False)
NOTHING = json_request(NO_FIELDS, required=False)
NEXT = {
    name: link(target, about, job_id="$response.body#/job_id")
    for name, target, about in (
        ("job", "getJob", "The job itself."),
        ("tasks", "getJobTasks", "Its tasks."),
        ("add", "addTask", "Add a task to it."),
        ("cancel", "cancelJob", "Cancel it."),
        ("retry", "retryJob", "Retry its failed tasks."),
    )
}

CREATE = operation(
    "createJob",
    "Create a job",
    "Makes a job with its first tasks, all or none. `depends_on` names other tasks by key. "
    "A request with an `Idempotency-Key` creates one job, however often it is sent.",
    parameters=[KEY],
    requestBody=json_request(
        {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": short_text(255),
                "description": nullable(short_text(10_000)),
                "timeout": nullable({"type": "number", "minimum": 0.001, "exclusiveMaximum": 1e9}),
                "tasks": nullable({"type": "array", "items": ref("TaskRequest"), "maxItems": 1000}),
            },
            "additionalProperties": False,
        },
        example={
            "name": "nightly",
            "tasks": [
                {"entrypoint": "mock", "kwargs": {"seconds": 0.1}, "key": "load"},
                {"entrypoint": "mock", "kwargs": {"seconds": 0.1}, "depends_on": ["load"]},
            ],
        },
    ),
    answers={
        201: says("The job was made.", JOB, headers={"Location": header("The path of the job.")}, links=NEXT),
        200: says(
            "The job was created by an earlier request with the same key.",
            JOB,
            headers={
                "Location": header("The path of the job."),
                "Idempotent-Replayed": header("Always `true`.", {"type": "string", "enum": ["true"]}),
            },
            links=NEXT,
        ),
        409: problem("key-reused"),
        400: problem("not-json", "bad-key", "bad-digest", "bad-request"),
        413: problem("body-too-large"),
        415: problem("unsupported-media-type"),
        422: problem("bad-input", "refused-value"),
    },
)

LIST = operation(
    "listJobs",
    "List jobs",
    "Newest first, in pages.",
    parameters=[
        in_query("status", "Only jobs of this status.", {"type": "string", "enum": [str(status) for status in Status]}),
        in_query("name", "Only jobs of this name.", TEXT),
        CURSOR,
        LIMIT,
    ],
    answers={
        200: says("A page.", listed(JOB, next_cursor=nullable(ID)), headers=PAGE),
        422: problem("bad-input"),
    },
)

SHOW = operation(
    "getJob",
    "Read a job",
    "With `wait`, answers when the job has ended or the time is over; with `If-None-Match` too, at any change, or 304.",
    parameters=[
        JOB_ID,
        in_query("wait", "Seconds to wait, at most 60.", {"type": "number", "minimum": 0, "maximum": 60}),
        in_header("If-None-Match", "The version that the client has."),
        in_header("Prefer", "`wait=20` is the same as `?wait=20`."),
    ],
    answers={
        200: says("The job.", JOB, headers={**ETAG, **RETRY_AFTER}),
        304: says("The document has not changed.", headers=ETAG),
        404: problem("job-not-found"),
        422: problem("bad-input"),
    },
)

TASKS = operation(
    "getJobTasks",
    "List the tasks of a job",
    "Each is a run; those made with the job come first.",
    parameters=[JOB_ID, CURSOR, LIMIT],
    answers={
        200: says("A page.", listed(ref("Run"), next_cursor=nullable(ID)), headers=PAGE),
        404: problem("job-not-found"),
        422: problem("bad-input"),
    },
)

ADD = operation(
    "addTask",
    "Add a task to a job",
    "A task whose key the job has already is found and answered, unless it differs from this one.",
    parameters=[JOB_ID],
    requestBody=json_request(ref("TaskRequest"), example={"entrypoint": "mock", "kwargs": {"seconds": 0.1}}),
    answers={
        201: says(
            "The task was added or already existed.", ref("Run"), headers={"Location": header("The path of the run.")}
        ),
        400: problem("not-json", "bad-key", "bad-digest", "bad-request"),
        404: problem("job-not-found"),
        409: problem("job-ended", "task-differs"),
        413: problem("body-too-large"),
        415: problem("unsupported-media-type"),
        422: problem("bad-input", "refused-value"),
    },
)

CANCEL = operation(
    "cancelJob",
    "Cancel a job",
    "Pending tasks end at once, running tasks are asked to stop, and no task starts any more.",
    parameters=[JOB_ID],
    requestBody=STOP,
    answers={
        200: says("The job is cancelled.", JOB, links=NEXT),
        202: says("Some of its tasks still have to stop.", JOB, links=NEXT),
        404: problem("job-not-found"),
        409: problem("job-ended"),
        422: problem("bad-input"),
    },
)

RETRY = operation(
    "retryJob",
    "Retry the failed tasks of a job",
    "Reopens its failed tasks, those cancelled because of them, and the job. What succeeded is not done again.",
    parameters=[JOB_ID],
    requestBody=NOTHING,
    answers={
        200: says("`reopened` is the number of reopened tasks.", {"allOf": [JOB], "properties": {"reopened": WHOLE}}),
        404: problem("job-not-found"),
        409: problem("job-ended"),
        422: problem("bad-input"),
    },
)
