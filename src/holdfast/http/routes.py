"""Routes as data: a path, a method, the scope it needs and what the OpenAPI document says about it.

Flask's rules, the check of scopes and the document are all made from the same tables, so no route is missing from one
of them. The routes of verbs are built from their declarations; a verb that streams or waits, or that depends on more of
the request than its arguments, has a custom view.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from types import ModuleType
from typing import Any, NamedTuple

import orjson
from flask import Blueprint

from holdfast.documents.shapes import TEXT
from holdfast.http import reading
from holdfast.http.answers import Answer, answer
from holdfast.http.call import Call, log_event
from holdfast.verbs.openapi import operation
from holdfast.verbs.verb import Http, Verb, declared

# Called with the Call, and with the parts of the path by name.
View = Callable[..., Answer]


ANY_SCOPE = ""
"""The scope of routes that accept any valid token."""


class Route(NamedTuple):
    """One operation. `scope` is None where no token is needed.

    With `always`, a request is admitted as an unknown principal while Postgres is away and no token can be checked.
    `is_page` marks routes that serve HTML (see `page`).
    """

    method: str
    path: str
    view: View
    scope: str | None
    operation: dict[str, Any]
    always: bool = False
    is_page: bool = False


def route(
    where: str, scope: str | None, name: str, summary: str, about: str = "", *, always: bool = False, **parts: Any
) -> Callable[[View], Route]:
    """Declare a route, such as `GET /tasks`, that is not made from a verb and has no query parameters.

    The decorated function is its view; `parts` belong to its OpenAPI operation.
    """
    method, path = where.split()

    def declare(view: View) -> Route:
        def checked(call: Call, **subjects: str) -> Answer:
            reading.query(call)
            return view(call, **subjects)

        return Route(method, path, checked, scope, operation(name, summary, about, **parts), always)

    return declare


@dataclass(frozen=True)
class Noun:
    """The routes about one thing."""

    name: str
    about: str
    routes: list[Route] = field(default_factory=list)

    def endpoints(self) -> dict[str, Route]:
        """Each route by its name in Flask."""
        return {f"{self.name}.{route.operation['operationId']}": route for route in self.routes}

    def blueprint(self) -> Blueprint:
        made = Blueprint(self.name, __name__)
        for route in self.routes:
            made.add_url_rule(
                route.path.replace("{", "<").replace("}", ">"),
                route.operation["operationId"],
                route.view,
                methods=[route.method],
                provide_automatic_options=False,
            )
        return made


def routes(verbs: ModuleType, views: Mapping[Verb[..., Any], View] | None = None) -> list[Route]:
    """The routes of the verbs that a module declares; `views` has those that are not built from the declaration."""
    return [
        Route(
            verb.http.method,
            verb.http.path,
            (views or {}).get(verb) or view_of(verb, verb.http),
            verb.http.scope,
            verb.http.operation,
        )
        for verb in declared(verbs)
        if verb.http is not None
    ]


def view_of(verb: Verb[..., Any], http: Http) -> View:
    """The view that calls the verb and answers with the document of its result."""

    def view(call: Call, **parts: str) -> Answer:
        reading.query(call)
        subjects = tuple(reading.SUBJECTS[name](text) for name, text in parts.items())
        given: dict[str, Any] = {}
        if http.method != "GET":
            body = reading.optional_object(call, tuple(http.body))
            given = {name: reading.field(body.get(name), name, schema) for name, schema in http.body.items()}
        found = call.service.database.execute(verb, subjects, given, call.caller)
        if http.method != "GET" and subjects:
            call.service.hub.wake(subjects[0])
        if http.event is not None:
            log_event(call, *http.event(found))
        form = http.answer
        write = form.write if form.restricted is None or call.may_read else form.restricted
        return answer(write(found), http.status(found))

    return view


MEDIA_TYPE = "text/html; charset=utf-8"
HTML = {"description": "An HTML page.", "content": {"text/html": {"schema": TEXT}}}


def page(path: str, view: Callable[..., Answer], scope: str | None, operation_id: str, summary: str) -> Route:
    """Declare a page. `scope` is None for a page that everyone may see."""
    return Route("GET", path, view, scope, operation(operation_id, summary, answers={200: HTML}), is_page=True)


def shown(html: str, style: str = "", status: int = 200) -> Answer:
    """A page. Its content security policy allows it to load nothing, and to use only this style."""
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"style-src 'sha256-{digest}'; " if style else ""
    headers = {
        "Content-Security-Policy": f"default-src 'none'; {policy}"
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    }
    return Answer(html.encode(), status, headers, MEDIA_TYPE)


def problem_page(call: Call, problem: Answer) -> Answer:
    """The page for a problem, with its status and headers."""
    assert isinstance(problem.body, bytes)  # noqa: S101 - problem documents are never streamed
    document = orjson.loads(problem.body)
    title, detail = escape(document["title"]), escape(document.get("detail", ""))
    made = shown(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<main><h1>{title}</h1><p>{detail}</p><p>Request {escape(call.request_id)}</p></main></html>",
        status=problem.status,
    )
    made.headers = {**problem.headers, **made.headers}
    return made
