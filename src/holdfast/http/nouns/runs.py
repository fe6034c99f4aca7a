"""Runs: submit, read, list."""

from __future__ import annotations

from functools import partial
from time import monotonic
from urllib.parse import urlencode

import orjson

from holdfast import ops
from holdfast.client.documents import run_document
from holdfast.domain.errors import Problem
from holdfast.domain.ids import parse_id
from holdfast.domain.states import Status
from holdfast.domain.values import NewRun, RunRecord, Submitted
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, etag_of, items, matches, nothing
from holdfast.http.asking import new_run, new_runs
from holdfast.http.call import Call
from holdfast.http.nouns import runs_operations as operations
from holdfast.http.routes import Noun, Route
from holdfast.http.service import Service
from holdfast.sql.runs import EVERYTHING

MAX_BATCH = 1000
FILTERS = ("status", "model", "queue", "tag", "cursor", "limit")


def submit(call: Call) -> Answer:
    here = call.service
    key = reading.idempotency_key(call)
    new = new_run(call, reading.json_body(call), key)
    submitted = here.database.perform(partial(ops.submit, new))
    created = _is_new(new, submitted)
    if created:
        here.database.ring((submitted.run.queue,), (submitted.run,))
    run = submitted.run
    body = orjson.dumps(run_document(run))
    headers = {"Location": f"/runs/{run.id}", "ETag": etag_of(body)}
    if not created:
        headers["Idempotent-Replayed"] = "true"
    return Answer(body, 201 if created else 200, headers)


def submit_batch(call: Call) -> Answer:
    here = call.service
    news = new_runs(call, reading.json_body(call), MAX_BATCH)
    submitted = here.database.perform(partial(ops.submit_many, news))
    created = [_is_new(new, one) for new, one in zip(news, submitted, strict=True)]
    made = [one.run for one, fresh in zip(submitted, created, strict=True) if fresh]
    if made:
        here.database.ring({run.queue for run in made}, made)
    shown = [{"created": fresh, "run": run_document(one.run)} for one, fresh in zip(submitted, created, strict=True)]
    return answer({"items": shown}, 201 if made else 200)


def _is_new(new: NewRun, submitted: Submitted) -> bool:
    """Whether this request made the run, be it in an earlier try whose answer was lost on the way from Postgres."""
    return submitted.created or submitted.run.id == new.id


def show(call: Call, run_id: str) -> Answer:
    here = call.service
    wait, preferred = reading.seconds_to_wait(call, reading.query(call, "wait"))
    known = call.tags()
    run = _read(here, reading.run_id(run_id))
    waited = wait > 0 and not _settled(run, known)
    if waited:
        run, waited = _wait(here, run, known, wait)
    body = _body(run)
    etag = etag_of(body)
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if not run.status.final:
        headers["Retry-After"] = "1"
    if preferred and waited:
        headers["Preference-Applied"] = f"wait={wait:g}"
    if matches(etag, known):
        return nothing(304, headers)
    return Answer(body, 200, headers)


def _read(here: Service, run_id: str) -> RunRecord:
    return here.database.perform(partial(ops.get, run_id))


def _body(run: RunRecord) -> bytes:
    return orjson.dumps(run_document(run))


def _settled(run: RunRecord, known: frozenset[str]) -> bool:
    """Whether there is nothing to wait for: it has ended or, for those who know a version, it is another one."""
    return run.status.final or (bool(known) and not matches(etag_of(_body(run)), known))


def _wait(here: Service, run: RunRecord, known: frozenset[str], seconds: float) -> tuple[RunRecord, bool]:
    """Wait until the run is settled or the time is over; not at all if too many wait already."""
    if not here.streams.enter():
        return run, False
    ends = monotonic() + seconds
    try:
        with here.hub.watch(run.id) as watch:
            run = _read(here, run.id)
            while not _settled(run, known) and (left := ends - monotonic()) > 0 and not here.streams.closing:
                watch.wait(left)
                run = _read(here, run.id)
    finally:
        here.streams.leave()
    return run, True


def index(call: Call) -> Answer:
    here = call.service
    given = reading.query(call, *FILTERS)
    limit = reading.whole(given, "limit", here.settings.page, 1, here.settings.max_page)
    status, before = given.get("status"), given.get("cursor")
    problems = []
    if status is not None and status not in tuple(Status):
        problems.append(Problem("/status", f"must be one of {', '.join(Status)}"))
    if before is not None and parse_id(before) is None:
        problems.append(Problem("/cursor", "is not one that this service gave out"))
    if problems:
        raise reading.refused(problems)
    found = here.database.perform(
        partial(
            ops.list_runs,
            status=status,
            task=given.get("model"),
            queue=given.get("queue"),
            tag=given.get("tag"),
            before=before or EVERYTHING,
            limit=limit + 1,
        )
    )
    page, more = found[:limit], len(found) > limit
    cursor = page[-1].id if more else None
    response = items([run_document(run) for run in page], next_cursor=cursor)
    if cursor is not None:
        query = urlencode({**given, "cursor": cursor})
        response.headers["Link"] = f'</runs?{query}>; rel="next"'
    return response


NOUN = Noun(
    "runs",
    "Runs: one invocation of a task each.",
    [
        Route("POST", "/runs", submit, "runs:write", operations.SUBMIT),
        Route("POST", "/runs/batch", submit_batch, "runs:write", operations.SUBMIT_BATCH),
        Route("GET", "/runs", index, "runs:read", operations.LIST),
        Route("GET", "/runs/{run_id}", show, "runs:read", operations.SHOW),
    ],
)
