"""Runs: submit, read, list."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
from werkzeug.http import quote_etag

from holdfast import ops
from holdfast.documents.runs import run_document
from holdfast.domain.errors import BadInput, Problem, refused
from holdfast.domain.ids import parse_id
from holdfast.domain.tasks import registry
from holdfast.domain.values import NewRun, RunRecord, Submitted
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, etag_of, page
from holdfast.http.call import Call, log_event
from holdfast.http.routes import Noun, routes
from holdfast.http.versions import versioned
from holdfast.sql.runs import EVERYTHING
from holdfast.verbs import runs as verbs
from holdfast.verbs import submissions
from holdfast.verbs.options import OPTIONS
from holdfast.verbs.outcomes import run_event
from holdfast.verbs.submissions import prepare

MAX_BATCH = 1000
FIELDS = ("model", "parameters", *OPTIONS)


def submit(call: Call) -> Answer:
    reading.query(call)
    key = reading.idempotency_key(call)
    new = _new_run(call, reading.json_body(call), key)
    submitted = call.service.database.perform(partial(ops.submit, new))
    run, created = submitted.run, _is_new(new, submitted)
    if created:
        call.service.database.ring((run.queue,), (run,))
        log_event(call, *run_event("run.submitted", run))
    body = orjson.dumps(run_document(run if created else _readable(call, new, run)))
    headers = {"Location": f"/runs/{run.id}", "ETag": quote_etag(etag_of(body))}
    if not created:
        headers["Idempotent-Replayed"] = "true"
    return Answer(body, 201 if created else 200, headers)


def submit_batch(call: Call) -> Answer:
    reading.query(call)
    reading.no_idempotency_key(call, "In a batch, each run has its own key: runs[].key.")
    news = _new_runs(call, reading.json_body(call, around=3), MAX_BATCH)
    submitted = call.service.database.perform(partial(ops.submit_many, news))
    created = [_is_new(new, one) for new, one in zip(news, submitted, strict=True)]
    made = [one.run for one, fresh in zip(submitted, created, strict=True) if fresh]
    if made:
        call.service.database.ring({run.queue for run in made}, made)
        for run in made:
            log_event(call, *run_event("run.submitted", run))
    shown = [
        {"created": fresh, "run": run_document(one.run if fresh else _readable(call, new, one.run))}
        for new, one, fresh in zip(news, submitted, created, strict=True)
    ]
    return answer({"items": shown}, 201 if made else 200)


def _new_run(call: Call, body: Any, key: str | None = None, pointer: str = "", dedupe: str = "active") -> NewRun:
    """Check a request for a run. Every problem has a pointer into the body.

    `dedupe` applies if neither the request nor its task sets it.
    """
    asked = reading.checked_object(body, FIELDS, pointer)
    model = asked.get("model")
    if not isinstance(model, str):
        raise refused(Problem(f"{pointer}/model", "must be the name of a task" if "model" in asked else "missing"))
    parameters = {} if asked.get("parameters") is None else asked["parameters"]
    if not isinstance(parameters, dict):
        raise refused(Problem(f"{pointer}/parameters", "must be an object"))
    options = {name: asked[name] for name in OPTIONS if asked.get(name) is not None}
    if key is not None and options.setdefault("key", key) != key:
        raise refused(Problem(f"{pointer}/key", "differs from the Idempotency-Key header; send one of them"))
    if "run_after" in options:
        options["run_after"] = reading.start(options["run_after"], f"{pointer}/run_after")
    task = registry.get(model)
    return prepare(
        call.settings,
        task,
        parameters,
        submitter=call.caller.submitter,
        default_dedupe=dedupe if task.dedupe == "off" and not task.has_own_dedupe else None,
        **options,
    )


def _new_runs(call: Call, body: Any, most: int) -> list[NewRun]:
    """Check a request for several runs, each as in `_new_run`, but without deduplication unless it is requested."""
    asked = reading.checked_object(body, ("runs",)).get("runs")
    if not isinstance(asked, list) or not 1 <= len(asked) <= most:
        raise refused(Problem("/runs", f"must be a list of 1 to {most} requests"))
    made, problems = [], []
    for index, one in enumerate(asked):
        pointer = f"/runs/{index}"
        try:
            made.append(_new_run(call, one, None, pointer, dedupe="off"))
        except BadInput as error:
            problems += [Problem(pointer + p.pointer.removeprefix(pointer), p.detail) for p in error.problems]
    if problems:
        raise refused(*problems[:20])
    return made


def _is_new(new: NewRun, submitted: Submitted) -> bool:
    """Whether this request created the run, perhaps in an earlier try whose response from Postgres was lost."""
    return submitted.created or submitted.run.id == new.id


def _readable(call: Call, new: NewRun, run: RunRecord) -> RunRecord:
    """A run that another request created, with only the fields that the caller may see: all with `runs:read`."""
    return run if call.may_read else ops.as_submitted(new, run)


def show(call: Call, run_id: str) -> Answer:
    id_ = reading.run_id(run_id)
    return versioned(call, id_, partial(ops.get, id_), run_document)


def index(call: Call) -> Answer:
    given, limit = reading.page_query(call, "status", "model", "queue", "tag", "job_id")
    list_runs = partial(
        ops.list_runs,
        status=given.get("status"),
        task=given.get("model"),
        queue=given.get("queue"),
        tag=given.get("tag"),
        job_id=parse_id(given.get("job_id")),
        before=given.get("cursor", EVERYTHING),
        limit=limit,
    )
    return page(call.service.database.perform(list_runs), run_document, "/runs", given)


NOUN = Noun(
    "runs",
    "Runs: each is one invocation of a task.",
    routes(submissions, {submissions.submit: submit, submissions.submit_many: submit_batch})
    + routes(verbs, {verbs.list_runs: index, verbs.get: show}),
)
