"""Submitting runs: requests are checked and prepared once, including ids, and performed until one attempt succeeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Unpack

from holdfast import ops
from holdfast.documents.runs import run_document
from holdfast.documents.shapes import record
from holdfast.domain.canonical import canonicalize
from holdfast.domain.errors import BadInput, BadParameters, NotCanonical, Problem
from holdfast.domain.ids import new_id, new_ids
from holdfast.domain.tasks import Task, registry
from holdfast.domain.values import NewRun, NewRuns, Payload, Submitted
from holdfast.runtime.settings import Settings
from holdfast.sql.statement import Op
from holdfast.verbs.caller import Caller
from holdfast.verbs.forms import Form, Reply
from holdfast.verbs.openapi import (
    BODY_PROBLEMS,
    ETAG,
    REPLAYED,
    RETRY_AFTER,
    RUN,
    RUN_LINKS,
    fields_of,
    json_request,
    key_for,
    listed,
    located,
    problem,
    ref,
    says,
)
from holdfast.verbs.options import ANONYMOUS, Dedupe, Submission, SubmitOptions, Submitter, Template, head_of
from holdfast.verbs.requests import many_of, submit_many_request, submit_request
from holdfast.verbs.verb import Endpoint, Hints, MakeOp, verb

AnyTask = Task | str | Callable[..., Any]

EXAMPLE = {"model": "mock", "parameters": {"seconds": 0.1, "steps": 2}}
PROBLEMS = {
    **BODY_PROBLEMS,
    409: problem("key-reused"),
    503: problem("database-unreachable", "database-read-only", "database-busy", headers=RETRY_AFTER),
}


# Runs per statement: enough to be cheap, and few enough that most batches are prepared while another is written. The
# first of several is small, because the server has nothing to do until it arrives.
BATCH, FIRST_BATCH = 250, 50


def prepare(
    settings: Settings,
    task: AnyTask,
    parameters: Any = None,
    *,
    submitter: Submitter = ANONYMOUS,
    id: str | None = None,  # noqa: A002
    default_dedupe: Dedupe | None = None,
    **options: Any,
) -> NewRun:
    """Check a request and return what to write. Raises BadInput with every problem it finds."""
    found = registry.resolve(task)
    head = head_of(settings, found, parameters, submitter, options, default_dedupe)
    return head.with_payload(_payload(found, parameters, id or new_id()))


def _template(caller: Caller, task: AnyTask, parameters: Any, options: Mapping[str, Any]) -> Template:
    """What runs of a task with these options have in common; without options, it is made once for each caller."""
    if options:
        found = registry.resolve(task)
        return Template(found, head_of(caller.settings, found, parameters, caller.submitter, options))
    try:
        known = caller.templates.get(task)
    except TypeError:  # it has no hash, so it is not a task
        known = None
    if known is None or known.version != registry.version:
        found = registry.resolve(task)
        known = Template(found, head_of(caller.settings, found, None, caller.submitter, {}), registry.version)
        for key, old in list(caller.templates.items()):
            if old.version != known.version:
                caller.templates.pop(key, None)
        caller.templates[task] = known
    return known


def prepare_batches(
    caller: Caller, task: AnyTask, many: Sequence[Any], options: Mapping[str, Any] | None = None
) -> tuple[NewRun, Batches]:
    """Check one or more requests that share their options: the first completely, the others' parameters in batches.

    A batch is checked when it is iterated over.
    """
    found, head, _ = _template(caller, task, many[0], options or {})
    return head, Batches(found, many, _payload(found, many[0], new_id()))


class Batches:
    """Batches of payloads of runs that share everything else; each is prepared while the one before is written.

    Iterating again yields the same payloads.
    """

    def __init__(self, task: Task, many: Sequence[Any], first: Payload) -> None:
        self._task = task
        self._many = many
        self._first = first
        self._made: list[list[Payload]] = []
        begins = range(FIRST_BATCH, len(many), BATCH) if len(many) > BATCH else ()
        self._bounds = list(pairwise([0, *begins, len(many)]))

    def __len__(self) -> int:
        return len(self._bounds)

    def __iter__(self) -> Iterator[list[Payload]]:
        for number, (begin, end) in enumerate(self._bounds):
            if number == len(self._made):
                self._made.append(self._prepare(begin, end))
            yield self._made[number]

    def _prepare(self, begin: int, end: int) -> list[Payload]:
        begun = [self._first] if begin == 0 else []
        asked = self._many[begin + len(begun) : end]
        ids = new_ids(len(asked))
        return begun + [_payload(self._task, one, id_) for one, id_ in zip(asked, ids, strict=True)]


def _payload(task: Task, parameters: Any, id_: str) -> Payload:
    if parameters is None:
        parameters = {}
    elif parameters.__class__ is not dict and not isinstance(parameters, Mapping):
        raise BadInput("/parameters: must be an object", [Problem("/parameters", "must be an object")])
    try:
        text, payload_hash = canonicalize(parameters, task.ignore_in_hash)
    except NotCanonical:
        with _relative_to_request():
            parameters = task.encode(parameters)
        text, payload_hash = canonicalize(parameters, task.ignore_in_hash)
    try:
        task.parameters.fit(text)
    except ValueError:
        with _relative_to_request():
            task.check(parameters, text)
    return Payload(id_, text, payload_hash)


@contextmanager
def _relative_to_request() -> Iterator[None]:
    """Make the pointers of BadParameters relative to the request instead of its parameters."""
    try:
        yield
    except BadParameters as error:
        problems = [Problem("/parameters" + p.pointer, p.detail) for p in error.problems]
        raise BadParameters(str(error), problems) from None


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
        """Check all of them first and write them with one statement, for a transaction of the caller."""
        self._batches = [[payload for batch in self._batches for payload in batch]]

    def __call__(self) -> Op[Sequence[Submitted]]:
        again, self._again = self._again, True
        return ops.submit_batches(self._head, self._batches, together=len(self._batches) > 1, again=again)


def mixed(caller: Caller, submissions: Sequence[Submission]) -> Callable[[], Op[Sequence[Submitted]]]:
    """Submit runs of different tasks."""
    made = [
        prepare(caller.settings, one.task, one.parameters, submitter=caller.submitter, id=id_, **one.options)
        for one, id_ in zip(submissions, new_ids(len(submissions)), strict=True)
    ]
    return partial(ops.submit_many, made)


def alike(
    caller: Caller, task: AnyTask, many: Sequence[Any], options: Mapping[str, Any]
) -> Callable[[], Op[Sequence[Submitted]]]:
    """Submit runs of one task that share their options."""
    if not many:
        return partial(ops.submit_many, ())
    head, batches = prepare_batches(caller, task, many, options)
    if head.key is None and head.dedupe == "off" and not head.depends_on:
        return SubmittingMany(head, batches)
    return partial(ops.submit_many, [head.with_payload(payload) for batch in batches for payload in batch])


def _ring_for_one(answer: Submitted) -> Hints | None:
    return Hints([answer.run.queue], [answer.run]) if answer.created and not answer.rung else None


def _ring_for_many(answers: Sequence[Submitted]) -> Hints:
    if isinstance(answers, NewRuns):
        return Hints([answers.queue], (answer.run for answer in answers))
    made = [answer.run for answer in answers if answer.created]
    return Hints({run.queue for run in made}, made)


def _read_submitted(reply: Reply) -> Submitted:
    return Submitted(run_document.read(reply.json()), reply.status == 201)


def _read_submitted_many(reply: Reply) -> list[Submitted]:
    return [Submitted(run_document.read(item["run"]), item["created"]) for item in reply.json()["items"]]


@verb(
    Endpoint("POST /runs", "runs:write", "submitRun", "Submit a run"),
    "Creates a run, or finds the one that the same key created. Without a key, a PENDING or RUNNING run with "
    "the same payload that was created within the last few minutes is found too, unless `dedupe` is set.",
    parameters=[key_for("payload", "run")],
    requestBody=json_request(ref("RunRequest"), example=EXAMPLE),
    answers={
        201: says("The run was created.", RUN, headers={**located("run"), **ETAG}, links=RUN_LINKS),
        200: says("The run already existed.", RUN, headers={**located("run"), **REPLAYED, **ETAG}, links=RUN_LINKS),
        422: problem("bad-input", "unknown-model", "bad-parameters", "refused-value"),
        **PROBLEMS,
    },
    form=Form(lambda answer: run_document(answer.run), _read_submitted),
    request=submit_request,
    rings=_ring_for_one,
)
def submit(
    caller: Caller, /, task: AnyTask, parameters: Mapping[str, Any] | None = None, **options: Unpack[SubmitOptions]
) -> MakeOp[Submitted]:
    """Create a run, or find the one that the same key or payload created."""
    found, head, _ = _template(caller, task, parameters, options)
    return Submitting(head, _payload(found, parameters, new_id()))


@verb(
    Endpoint("POST /batches", "runs:write", "submitRuns", "Submit several runs"),
    "All of them are created, or none. Each may have its own `key` or `dedupe`; without one, each creates a "
    "run. Keys are per run (`runs[].key`), so an `Idempotency-Key` is rejected.",
    requestBody=json_request(
        fields_of({"runs": {"type": "array", "items": ref("RunRequest"), "minItems": 1, "maxItems": 1000}}, "runs"),
        example={"runs": [EXAMPLE]},
    ),
    answers={
        status: says(about, listed(record("One answer.", {"created": {"type": "boolean"}, "run": RUN})))
        for status, about in ((201, "At least one run was created."), (200, "All of them already existed."))
    }
    | {422: problem("bad-input", "refused-value")}
    | PROBLEMS,
    form=Form(lambda answers: answers, _read_submitted_many),
    request=submit_many_request,
    rings=_ring_for_many,
)
def submit_many(
    caller: Caller,
    /,
    task: AnyTask | Iterable[Submission],
    many: Iterable[Mapping[str, Any]] | None = None,
    **options: Unpack[SubmitOptions],
) -> MakeOp[Sequence[Submitted]]:
    """Create many runs, all or none: of one task from a list of parameters, or from a list of Submission values."""
    submissions = many_of(task, many)
    if submissions is None:
        return alike(caller, task, list(many or ()), options)  # type: ignore[arg-type]
    return mixed(caller, submissions)
