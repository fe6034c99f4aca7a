"""Submitting runs: a request is prepared once, including ids, and tried until it succeeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

from holdfast import ops
from holdfast.documents import reading
from holdfast.documents.runs import run_document
from holdfast.domain.ids import new_ids
from holdfast.domain.tasks import Task
from holdfast.domain.values import NewRun, Payload, Submitted
from holdfast.sql.statement import Op
from holdfast.verbs.caller import Caller
from holdfast.verbs.forms import Form, Reply
from holdfast.verbs.openapi import (
    ETAG,
    RETRY_AFTER,
    RUN,
    RUN_LINKS,
    UNREADABLE,
    header,
    in_header,
    json_request,
    listed,
    operation,
    problem,
    record,
    ref,
    says,
)
from holdfast.verbs.preparation import Batches, Submission, SubmitOptions, prepare, prepare_batches, prepare_one
from holdfast.verbs.requests import many_of, submit_many_request, submit_request
from holdfast.verbs.verb import Hints, Http, MakeOp, verb

AnyTask = Task | str | Callable[..., Any]

KEY = in_header(
    "Idempotency-Key",
    "1 to 255 visible ASCII characters, quoted or unquoted. The same key and payload return the same run.",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
)
EXAMPLE = {"model": "mock", "parameters": {"seconds": 0.1, "steps": 2}}
DATABASE_PROBLEMS = problem("database-unreachable", "database-read-only", "database-busy", headers=RETRY_AFTER)


@dataclass(slots=True)
class Submitting:
    """Makes the operation that submits a run, once for each try.

    Only a repeated one can find a run with its id: the id was generated for this submission alone.
    """

    head: NewRun
    payload: Payload
    rings: bool = False
    """Whether the statement rings for the run's queue, or hands the run to a waiting worker."""
    again: bool = False

    def __call__(self) -> Op[Submitted]:
        again, self.again = self.again, True
        return ops.submit_one(self.head, self.payload, ring=self.rings, again=again)


def mute(make_op: object) -> bool:
    """Remove the notification from the statement of a submit; False if it had none."""
    if not isinstance(make_op, Submitting) or not make_op.rings:
        return False
    make_op.rings = False
    return True


class SubmittingMany:
    """The same for batches of runs that share everything but their payload."""

    def __init__(self, head: NewRun, batches: Batches) -> None:
        self._head = head
        self._batches: Batches | list[list[Payload]] = batches
        self._again = False

    def at_once(self) -> None:
        """Check all runs first and write them with one statement, for a caller's transaction."""
        self._batches = [[payload for batch in self._batches for payload in batch]]

    def __call__(self) -> Op[list[Submitted]]:
        again, self._again = self._again, True
        return ops.submit_batches(self._head, self._batches, together=len(self._batches) > 1, again=again)


def mixed(caller: Caller, submissions: Sequence[Submission]) -> Callable[[], Op[list[Submitted]]]:
    """Submit runs of different tasks."""
    made = [
        prepare(caller.settings, one.task, one.parameters, submitter=caller.submitter, id=id_, **one.options)
        for one, id_ in zip(submissions, new_ids(len(submissions)), strict=True)
    ]
    return partial(ops.submit_many, made)


def alike(
    caller: Caller, task: AnyTask, many: Sequence[Any], options: Mapping[str, Any]
) -> Callable[[], Op[list[Submitted]]]:
    """Submit runs of one task that share their options."""
    if not many:
        return partial(ops.submit_many, ())
    head, batches = prepare_batches(caller.settings, task, many, submitter=caller.submitter, **options)
    if head.key is None and head.dedupe == "off" and not head.depends_on:
        return SubmittingMany(head, batches)
    return partial(ops.submit_many, [head.with_payload(payload) for batch in batches for payload in batch])


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
            "Creates a run, or finds the one that the same key created. Without a key, a PENDING or RUNNING run with "
            "the same payload that was created in the last minutes is found too, unless `dedupe` is set.",
            parameters=[KEY],
            requestBody=json_request(ref("RunRequest"), example=EXAMPLE),
            answers={
                201: says(
                    "The run was created.",
                    RUN,
                    headers={"Location": header("The path of the run."), **ETAG},
                    links=RUN_LINKS,
                ),
                200: says(
                    "The run already existed.",
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
    """Create a run, or find the one that the same key or payload created."""
    return Submitting(*prepare_one(caller.settings, task, parameters, submitter=caller.submitter, **options))


@verb(
    rings=_ring_for_many,
    http=Http(
        "POST",
        "/batches",
        "runs:write",
        operation(
            "submitRuns",
            "Submit several runs",
            "All of them are created, or none. Each may have its own `key` or `dedupe`; without one, each creates a "
            "run. Keys are per run (`runs[].key`), so an `Idempotency-Key` is rejected.",
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
                for status, about in ((201, "At least one run was created."), (200, "All of them already existed."))
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
    """Create many runs, all or none: of one task from a list of parameters, or from a list of Submission values."""
    submissions = many_of(task, many)
    if submissions is None:
        return alike(caller, task, list(many or ()), options)  # type: ignore[arg-type]
    return mixed(caller, submissions)
