"""The application, put together."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask.globals import request_ctx

from holdfast.domain.tasks import load_modules
from holdfast.http.guard import Guard
from holdfast.http.nouns import health, history, jobs, meta, metrics, outcomes, queues, runs, summary, tasks, workers
from holdfast.http.openapi import build
from holdfast.http.problems import answer_to
from holdfast.http.routes import Noun
from holdfast.http.service import EXTENSION, Service
from holdfast.http.telling import tell_failure
from holdfast.settings import Settings, load

NOUNS: list[Noun] = [
    runs.NOUN,
    outcomes.NOUN,
    history.NOUN,
    jobs.NOUN,
    queues.NOUN,
    workers.NOUN,
    tasks.NOUN,
    summary.NOUN,
    health.NOUN,
    metrics.NOUN,
    meta.NOUN,
]


class Api(Flask):
    """Flask, with the way of a request through it written out.

    It passes the guard, its view is called, whatever was raised becomes a problem, and the guard adds the headers that
    every answer has. Views of nouns take the call and return an Answer; others (pages) work as Flask's do.
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__("holdfast", static_folder=None)
        self.guard = guard
        self.url_map.merge_slashes = False

    def full_dispatch_request(self) -> Any:
        guard, asked = self.guard, request_ctx.request
        call = guard.receive(asked.environ)
        try:
            if asked.routing_exception is not None:
                guard.check(call)
                self.raise_routing_exception(asked)
            rule = asked.url_rule
            endpoint = rule.endpoint if rule is not None else ""
            guard.admit(call, endpoint)
            if endpoint in guard.scopes:
                answered = self.view_functions[endpoint](call, **(asked.view_args or {}))
            else:
                answered = self._page()
        except Exception as error:  # noqa: BLE001 - this is where every error ends, in an answer
            answered = answer_to(error, call.request_id)
            if answered.status >= 500:
                tell_failure(error, call.request_id, ours=answered.status == 500)
        return guard.finish(call, answered, asked.url_rule)

    def _page(self) -> Any:
        """A view that is not of a noun, with all that Flask does around it."""
        before = self.preprocess_request()
        return self.process_response(self.make_response(self.dispatch_request() if before is None else before))


def make(settings: Settings | None = None) -> Flask:
    """See `holdfast.http.create_app`."""
    settings = settings or load()
    load_modules(("holdfast.tasks", *settings.tasks))
    service = Service(settings)
    service.document = build(NOUNS, settings)
    app = Api(Guard(service, NOUNS))
    app.extensions[EXTENSION] = service
    for noun in NOUNS:
        app.register_blueprint(noun.blueprint())
    return app
