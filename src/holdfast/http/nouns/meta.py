"""The API about itself: its OpenAPI document, a page that shows it, and the kinds of problems."""

from __future__ import annotations

from holdfast.documents.shapes import OBJECT, TEXT, WHOLE, record
from holdfast.domain.errors import NotFound
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, items
from holdfast.http.call import Call
from holdfast.http.openapi.page import STYLE, rendered
from holdfast.http.pages import page, shown
from holdfast.http.problems import KINDS
from holdfast.http.routes import Noun, route
from holdfast.verbs.openapi import in_path, listed, problem, says

PLACES = ("runs", "jobs", "queues", "workers", "tasks", "summary", "docs", "openapi.json", "metrics", "healthz")


def index(call: Call) -> Answer:
    reading.query(call)
    return answer({"name": "holdfast", "links": {name: f"/{name}" for name in PLACES}})


def openapi(call: Call) -> Answer:
    reading.query(call)
    return answer(call.service.document)


def docs(call: Call) -> Answer:
    reading.query(call)
    return shown(rendered(call.service.document), STYLE)


def problems(call: Call) -> Answer:
    reading.query(call)
    return items([_kind(name) for name in KINDS])


def show_problem(call: Call, kind: str) -> Answer:
    reading.query(call)
    if kind not in KINDS:
        raise NotFound("there is no problem type with this name; GET /problems lists them")
    return answer(_kind(kind))


def _kind(name: str) -> dict[str, object]:
    kind = KINDS[name]
    return {"type": f"/problems/{name}", "status": kind.status, "title": kind.title, "about": kind.about}


KIND = record("A kind of problem.", {"type": TEXT, "status": WHOLE, "title": TEXT, "about": TEXT})

NOUN = Noun(
    "meta",
    "Information about the API.",
    [
        route("GET /", index, None, "getIndex", "List the entry points", answers={200: says("Links.", OBJECT)}),
        route(
            "GET /openapi.json",
            openapi,
            None,
            "getOpenApi",
            "Read this document",
            answers={200: says("OpenAPI 3.1.", OBJECT)},
        ),
        page("/docs", docs, None, "getDocs", "Read this document as a page"),
        route(
            "GET /problems",
            problems,
            None,
            "listProblems",
            "List the kinds of problems",
            answers={200: says("All kinds of problems.", listed(KIND))},
        ),
        route(
            "GET /problems/{kind}",
            show_problem,
            None,
            "getProblem",
            "Read a kind of problem",
            parameters=[in_path("kind", "The last part of a problem's `type`.")],
            answers={200: says("What it means.", KIND), 404: problem("not-found")},
        ),
    ],
)
