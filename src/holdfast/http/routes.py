"""Routes as data: a path, a method, the scope it needs and what the OpenAPI document says about it.

Flask's rules, the check of scopes and the document are all made from the same tables, so no route is missing from one
of them. The routes of verbs are built from their declarations; a verb that streams or waits, or that depends on more of
the request than its arguments, has a custom view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from flask import Blueprint

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
    `is_page` marks routes that serve HTML (see `pages`).
    """

    method: str
    path: str
    view: View
    scope: str | None
    operation: dict[str, Any]
    always: bool = False
    is_page: bool = False


def route(
    where: str,
    view: View,
    scope: str | None,
    name: str,
    summary: str,
    about: str = "",
    *,
    always: bool = False,
    **parts: Any,
) -> Route:
    """A route, such as `GET /tasks`, that is not made from a verb; `parts` belong to its OpenAPI operation."""
    method, path = where.split()
    return Route(method, path, view, scope, operation(name, summary, about, **parts), always)


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
