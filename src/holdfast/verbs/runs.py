"""Runs: submit, read, list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Unpack

from holdfast import ops
from holdfast.client.requests import Submission, SubmitOptions, prepare
from holdfast.documents import reading
from holdfast.documents.runs import run_document
from holdfast.domain.errors import BadInput, Problem
from holdfast.domain.ids import parse_id
from holdfast.domain.records import Page
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord, Submitted
from holdfast.sql.runs import EVERYTHING
from holdfast.sql.statement import Op
from holdfast.verbs import forms
from holdfast.verbs.caller import Caller
from holdfast.verbs.forms import Form, Reply
from holdfast.verbs.openapi import (
    ETAG,
    ID,
    RETRY_AFTER,
    RUN,
    RUN_ID,
    RUN_LINKS,
    TEXT,
    UNREADABLE,
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
from holdfast.verbs.requests import submit_many_request, submit_request
from holdfast.verbs.subjects import run_id
from holdfast.verbs.submissions import AnyTask, Submitting, alike, many_of, mixed
from holdfast.verbs.verb import Hints, Http, MakeOp, verb

KEY = in_header(
    "Idempotency-Key",
    "1 to 255 visible ASCII characters, quoted or unquoted. The same key and payload return the same run.",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
)
EXAMPLE = {"model": "mock", "parameters": {"seconds": 0.1, "steps": 2}}
DATABASE_PROBLEMS = problem("database-unreachable", "database-read-only", "database-busy", headers=RETRY_AFTER)


def _ring_for_one(answer: Submitted) -> Hints | None:
    return Hints([answer.run.queue], [answer.run]) if answer.created and not answer.rung else None


def _ring_for_many(answers: list[Submitted]) -> Hints:
    made = [answer.run for answer in answers if answer.created]
    return Hints({run.queue for run in made}, made)


def _read_submitted(reply: Reply) -> Submitted:
    return Submitted(reading.run(reply.json()), reply.status == 201)


def _read_submitted_many(reply: Reply) -> list[Submitted]:
    return [Submitted(reading.run(item["run"]), item["created"]) for item in reply.json()["items"]]


@verb(
    rings=_ring_for_one,
    http=Http(
        "POST",
        "/runs",
        "runs:write",
        operation(
            "submitRun",
            "Submit a run",
            "Makes a run, or finds the one that the same key made before. Without a key, a PENDING or RUNNING run with "
            "the same payload made in the last minutes is found too, unless `dedupe` says otherwise.",
            parameters=[KEY],
            requestBody=json_request(ref("RunRequest"), example=EXAMPLE),
            answers={
                201: says(
                    "The run was made.",
                    RUN,
                    headers={"Location": header("The path of the run."), **ETAG},
                    links=RUN_LINKS,
                ),
                200: says(
                    "The run existed already.",
                    RUN,
                    headers={
                        "Location": header("The path of the run."),
                        "Idempotent-Replayed": header("Always `true`.", {"type": "string", "enum": ["true"]}),
                        **ETAG,
                    },
                    links=RUN_LINKS,
                ),
                400: UNREADABLE,
                409: problem("key-reused"),
                413: problem("body-too-large"),
                415: problem("unsupported-media-type"),
                422: problem("bad-input", "unknown-model", "bad-parameters", "refused-value"),
                503: DATABASE_PROBLEMS,
            },
        ),
        Form(lambda answer: run_document(answer.run), _read_submitted),
        request=submit_request,
    ),
)
def submit(
    caller: Caller,
    /,
    task: AnyTask,
    parameters: Mapping[str, Any] | None = None,
    **options: Unpack[SubmitOptions],
) -> MakeOp[Submitted]:
    """Make a run, or find the one that the same key or payload made before."""
    return Submitting(prepare(caller.settings, task, parameters, asker=caller.submitter, **options))


@verb(
    rings=_ring_for_many,
    http=Http(
        "POST",
        "/batches",
        "runs:write",
        operation(
            "submitRuns",
            "Submit several runs",
            "All of them are made or none. Each may have a `key` or a `dedupe` of its own; without one, each makes a "
            "run. Keys are per run (`runs[].key`), so an `Idempotency-Key` is refused.",
            requestBody=json_request(
                {
                    "type": "object",
                    "required": ["runs"],
                    "properties": {
                        "runs": {"type": "array", "items": ref("RunRequest"), "minItems": 1, "maxItems": 1000}
                    },
                    "additionalProperties": False,
                },
                example={"runs": [EXAMPLE]},
            ),
            answers={
                status: says(about, listed(record("One answer.", {"created": {"type": "boolean"}, "run": RUN})))
                for status, about in ((201, "At least one run was made."), (200, "All of them existed already."))
            }
            | {
                400: UNREADABLE,
                409: problem("key-reused"),
                413: problem("body-too-large"),
                415: problem("unsupported-media-type"),
                422: problem("bad-input", "refused-value"),
                503: DATABASE_PROBLEMS,
            },
        ),
        Form(lambda answers: answers, _read_submitted_many),
        request=submit_many_request,
    ),
)
def submit_many(
    caller: Caller,
    /,
    task: AnyTask | Iterable[Submission],
    many: Iterable[Mapping[str, Any]] | None = None,
    **options: Unpack[SubmitOptions],
) -> MakeOp[list[Submitted]]:
    """Make many runs: of one task with a list of parameters, or of a list of Submission values. All or none."""
    submissions = many_of(task, many, options)
    if submissions is None:
        return alike(caller, task, list(many or ()), options)  # type: ignore[arg-type]
    return mixed(caller, submissions)


@verb(
    http=Http(
        "GET",
        "/runs",
        "runs:read",
        operation(
            "listRuns",
            "List runs",
            "Newest first, in pages. `next_cursor` is null on the last page; earlier pages may be short, or even "
            "empty.",
            parameters=[
                in_query(
                    "status",
                    "Only runs of this status.",
                    {"type": "string", "enum": [str(status) for status in Status]},
                ),
                in_query("model", "Only runs of this task.", TEXT),
                in_query("queue", "Only runs of this queue.", TEXT),
                in_query("tag", "Only runs with this tag.", TEXT),
                in_query("job_id", "Only runs of this job.", ID),
                in_query("cursor", "Continue after this `next_cursor`.", ID),
                in_query(
                    "limit",
                    "Maximum number of items.",
                    {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
                ),
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
        ),
        forms.RUNS,
    ),
)
def list_runs(
    caller: Caller,
    /,
    *,
    status: str | None = None,
    model: str | None = None,
    queue: str | None = None,
    tag: str | None = None,
    job_id: str | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> MakeOp[Page[RunRecord]]:
    """Return a page of runs, newest first. Pass `cursor=page.next_cursor` for the next; it is None on the last page.

    A page may have fewer than `limit` runs although there are more. It is empty only if there are none.
    """
    settings = caller.settings
    limit = settings.page if limit is None else limit
    problems = []
    if status is not None and status not in tuple(Status):
        problems.append(Problem("/status", f"must be one of {', '.join(Status)}"))
    if not 1 <= limit <= settings.max_page:
        problems.append(Problem("/limit", f"must be from 1 to {settings.max_page}"))
    before = EVERYTHING if cursor is None else parse_id(cursor)
    if before is None:
        problems.append(Problem("/cursor", "is not one that this service gave out"))
    job = parse_id(job_id) if job_id is not None else None
    if job_id is not None and job is None:
        problems.append(Problem("/job_id", "is not the id of a job"))
    if problems or before is None:
        raise BadInput("; ".join(f"{p.pointer}: {p.detail}" for p in problems), problems)
    filters = {"status": status, "task": model, "queue": queue, "tag": tag, "job_id": job, "limit": limit}
    return partial(_next_page, filters, before)


def _next_page(filters: Mapping[str, Any], before: str) -> Op[Page[RunRecord]]:
    """Return the next page that is not empty, or the last page."""
    page = yield from ops.list_runs(**filters, before=before)
    while not page and page.next_cursor is not None:
        page = yield from ops.list_runs(**filters, before=page.next_cursor)
    return page


@verb(
    http=Http(
        "GET",
        "/runs/{run_id}",
        "runs:read",
        operation(
            "getRun",
            "Read a run",
            "With `wait`, answers when the run has ended or the time is over; with `If-None-Match` too, at any change, "
            "or 304.",
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
        ),
        forms.RUN,
    ),
)
def get(caller: Caller, /, run: object) -> MakeOp[RunRecord]:
    """Read one run."""
    return partial(ops.get, run_id(run))
