"""The API about itself: its OpenAPI document, a page that shows it, and the kinds of problems."""

from __future__ import annotations

from holdfast.documents.shapes import OBJECT, TEXT, WHOLE, record
from holdfast.domain.errors import NotFound
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, items
from holdfast.http.call import Call
from holdfast.http.openapi.page import STYLE, rendered
from holdfast.http.problems import KINDS
from holdfast.http.routes import Noun, page, route, shown
from holdfast.verbs.openapi import in_path, listed, problem, says

PLACES = ("runs", "jobs", "queues", "workers", "tasks", "summary", "docs", "openapi.json", "metrics", "healthz")


KIND = record("A kind of problem.", {"type": TEXT, "status": WHOLE, "title": TEXT, "about": TEXT})


@route("GET /", None, "getIndex", "List the entry points", answers={200: says("Links.", OBJECT)})
def index(call: Call) -> Answer:
    return answer({"name": "holdfast", "links": {name: f"/{name}" for name in PLACES}})


@route("GET /openapi.json", None, "getOpenApi", "Read this document", answers={200: says("OpenAPI 3.1.", OBJECT)})
def openapi(call: Call) -> Answer:
    return answer(call.service.document)


def docs(call: Call) -> Answer:
    reading.query(call)
    return shown(rendered(call.service.document), STYLE)


@route(
    "GET /problems",
    None,
    "listProblems",
    "List the kinds of problems",
    answers={200: says("All kinds of problems.", listed(KIND))},
)
def problems(call: Call) -> Answer:
    return items([_kind(name) for name in KINDS])


@route(
    "GET /problems/{kind}",
    None,
    "getProblem",
    "Read a kind of problem",
    parameters=[in_path("kind", "The last part of a problem's `type`.")],
    answers={200: says("What it means.", KIND), 404: problem("not-found")},
)
def show_problem(call: Call, kind: str) -> Answer:
    if kind not in KINDS:
        raise NotFound("there is no problem type with this name; GET /problems lists them")
    return answer(_kind(kind))


def _kind(name: str) -> dict[str, object]:
    kind = KINDS[name]
    return {"type": f"/problems/{name}", "status": kind.status, "title": kind.title, "about": kind.about}


DOCS = page("/docs", docs, None, "getDocs", "Read this document as a page")
NOUN = Noun("meta", "Information about the API.", [index, openapi, DOCS, problems, show_problem])
