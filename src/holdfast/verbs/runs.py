"""Runs: read and list."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from holdfast import ops
from holdfast.documents.shapes import ID, STATUS, TEXT
from holdfast.domain.errors import Problem, refused
from holdfast.domain.ids import parse_id
from holdfast.domain.records import Page
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.sql.runs import EVERYTHING
from holdfast.sql.statement import Op
from holdfast.verbs import forms
from holdfast.verbs.caller import Caller
from holdfast.verbs.openapi import CURSOR, LIMIT, RUN, WAITING, in_query, link, page_of, version_of
from holdfast.verbs.subjects import run_id
from holdfast.verbs.verb import Endpoint, MakeOp, verb


@verb(
    Endpoint("GET /runs", "runs:read", "listRuns", "List runs"),
    "Newest first, in pages. `next_cursor` is null on the last page; earlier pages may be short, or even empty.",
    parameters=[
        in_query("status", "Only runs with this status.", STATUS.schema),
        in_query("model", "Only runs of this task.", TEXT),
        in_query("queue", "Only runs of this queue.", TEXT),
        in_query("tag", "Only runs with this tag.", TEXT),
        in_query("job_id", "Only runs of this job.", ID),
        CURSOR,
        LIMIT,
    ],
    answers=page_of(RUN, {"next": link("listRuns", "The next page.", cursor="$response.body#/next_cursor")}),
    form=forms.RUNS,
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

    A page may have fewer than `limit` runs even if there are more. It is empty only if there are none.
    """
    settings = caller.settings
    limit = settings.page if limit is None else limit
    problems = filter_problems(status, job_id, cursor)
    if not 1 <= limit <= settings.max_page:
        problems.append(Problem("/limit", f"must be from 1 to {settings.max_page}"))
    if problems:
        raise refused(*problems)
    filters = {"status": status, "task": model, "queue": queue, "tag": tag, "job_id": parse_id(job_id), "limit": limit}
    return partial(_next_page, filters, parse_id(cursor) or EVERYTHING)


def filter_problems(status: str | None, job_id: str | None, cursor: str | None) -> list[Problem]:
    """What is wrong with the filters of a list of runs or jobs."""
    problems = []
    if status is not None and status not in tuple(Status):
        problems.append(Problem("/status", f"must be one of {', '.join(Status)}"))
    if job_id is not None and parse_id(job_id) is None:
        problems.append(Problem("/job_id", "is not the id of a job"))
    if cursor is not None and parse_id(cursor) is None:
        problems.append(Problem("/cursor", "is not a cursor that this server returned"))
    return problems


def _next_page(filters: Mapping[str, Any], before: str) -> Op[Page[RunRecord]]:
    """Return the next page that is not empty, or the last page."""
    page = yield from ops.list_runs(**filters, before=before)
    while not page and page.next_cursor is not None:
        page = yield from ops.list_runs(**filters, before=page.next_cursor)
    return page


@verb(
    Endpoint("GET /runs/{run_id}", "runs:read", "getRun", "Read a run"),
    "With `wait`, responds when the run has ended or the time has passed. With `If-None-Match`, also responds as "
    "soon as the run changes, or with 304 if it does not.",
    parameters=WAITING,
    answers=version_of("The run.", RUN),
    form=forms.RUN,
)
def get(caller: Caller, /, run: object) -> MakeOp[RunRecord]:
    """Read one run."""
    return partial(ops.get, run_id(run))
