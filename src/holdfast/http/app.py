"""The application: Flask with the guard, the nouns and the service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

from flask import Flask
from flask.globals import request_ctx

from holdfast.domain.errors import DatabaseUnreachable
from holdfast.domain.tasks import load_modules
from holdfast.http.call import Call, log_failure
from holdfast.http.hosts import Hosts, check_origin
from holdfast.http.nouns import NOUNS
from holdfast.http.openapi import build
from holdfast.http.principals import UNKNOWN, Authenticator
from holdfast.http.problems import Refusal, answer_to
from holdfast.http.routes import Noun, problem_page
from holdfast.http.service import EXTENSION, Service
from holdfast.runtime.settings import Settings, load

CONTENT_SECURITY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Guard:
    """Knows which scope each route requires (None if it needs no token), and which routes are pages."""

    def __init__(self, service: Service, nouns: Iterable[Noun]) -> None:
        self._service = service
        self._meters = service.meters
        self._hosts = Hosts(service.settings)
        self._authenticator = Authenticator(service)
        routes = {name: route for noun in nouns for name, route in noun.endpoints().items()}
        self.scopes = {name: route.scope for name, route in routes.items()}
        self.pages = {name for name, route in routes.items() if route.is_page}
        self._always = {name for name, route in routes.items() if route.always}

    def receive(self, environ: Mapping[str, Any]) -> Call:
        """Count the request, and assign its ids."""
        self._meters.enter()
        return Call(self._service, environ)

    def admit(self, call: Call, endpoint: str | None) -> None:
        """Admit the request and set its principal, or raise the Refusal that says why not."""
        host = call.environ.get("HTTP_HOST")
        if host is None:
            if call.environ["SERVER_PROTOCOL"] == "HTTP/1.1":
                raise Refusal("bad-request", "An HTTP/1.1 request needs a Host header.")
        elif not self._hosts.knows(host):
            raise Refusal("unknown-host", "The Host header does not name this server; add the name to HOLDFAST_HOSTS.")
        coding = call.environ.get("HTTP_TRANSFER_ENCODING")
        if coding is not None and coding.strip().lower() != "chunked":
            raise Refusal("bad-request", "The only Transfer-Encoding that this server supports is chunked.")
        check_origin(call.environ["REQUEST_METHOD"], call.environ)
        scope = self.scopes.get(endpoint) if endpoint is not None else None
        if scope is not None:
            try:
                call.principal = self._authenticator.admit(call.environ, scope)
            except DatabaseUnreachable:
                if endpoint not in self._always:
                    raise
                call.principal = UNKNOWN

    def finish(self, call: Call, answered: Any, route: str) -> Any:
        """Add the headers that every answer has, and count it."""
        headers = answered.headers
        headers["X-Content-Type-Options"] = "nosniff"
        headers["X-Request-Id"] = call.request_id
        headers["traceparent"] = call.traceparent
        headers.setdefault("Cache-Control", "no-store")
        if headers.get("Content-Type", "").startswith("text/html"):
            headers.setdefault("Content-Security-Policy", CONTENT_SECURITY)
            headers["Referrer-Policy"] = "no-referrer"
        status = getattr(answered, "status_code", None) or answered.status
        self._meters.leave(route, call.environ["REQUEST_METHOD"], status, perf_counter() - call.began)
        return answered


class Api(Flask):
    """Flask, with an explicit path for each request.

    The guard admits it, its view is called, an error becomes a problem document, and the guard adds the headers that
    every answer has. Views of nouns take the call and return an Answer; they do not use Flask's context, so a path
    without variable parts is answered without creating one. Other views work as usual in Flask.
    """

    def __init__(self, guard: Guard, nouns: Iterable[Noun]) -> None:
        super().__init__("holdfast", static_folder=None)
        self.url_map.merge_slashes = False
        self._guard = guard
        self._direct: dict[tuple[str, str], str] = {}
        for noun in nouns:
            self.register_blueprint(noun.blueprint())
            for endpoint, route in noun.endpoints().items():
                if "{" not in route.path:
                    self._direct[route.method, route.path] = endpoint

    def wsgi_app(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        endpoint = self._direct.get((environ["REQUEST_METHOD"], path))
        if endpoint is None:
            return super().wsgi_app(environ, start_response)
        return self._answer(environ, endpoint, path, {})(environ, start_response)

    def full_dispatch_request(self) -> Any:
        asked = request_ctx.request
        rule = asked.url_rule
        if rule is None:
            return self._answer(asked.environ, None, "(none)", {})
        return self._answer(asked.environ, rule.endpoint, rule.rule, asked.view_args or {})

    def _answer(self, environ: dict[str, Any], endpoint: str | None, route: str, parts: dict[str, Any]) -> Any:
        guard = self._guard
        call = guard.receive(environ)
        try:
            guard.admit(call, endpoint)
            answered = self.view_functions[endpoint](call, **parts) if endpoint in guard.scopes else self._other()
        except Exception as error:  # noqa: BLE001 - this is where every error ends, in an answer
            answered = answer_to(error, call.request_id)
            if answered.status >= 500:
                log_failure(error, call.request_id, ours=answered.status == 500)
            if endpoint in guard.pages:
                answered = problem_page(call, answered)
        return guard.finish(call, answered, route)

    def _other(self) -> Any:
        """A view that does not belong to a noun, with Flask's usual processing; or the error that routing raised."""
        before = self.preprocess_request()
        return self.process_response(self.make_response(self.dispatch_request() if before is None else before))


def make(settings: Settings | None = None) -> Flask:
    """See `holdfast.http.create_app`."""
    settings = settings or load()
    load_modules(("holdfast.tasks", *settings.tasks))
    service = Service(settings)
    service.document = build(NOUNS, settings)
    app = Api(Guard(service, NOUNS), NOUNS)
    app.extensions[EXTENSION] = service
    return app
