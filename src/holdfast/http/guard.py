"""What every request passes on its way in, and every answer on its way out."""

from __future__ import annotations

from time import perf_counter

from flask import Flask, Response, g, request

from holdfast.http import tracing
from holdfast.http.hosts import Hosts, check_origin
from holdfast.http.meters import Meters
from holdfast.http.principals import Door, Principal
from holdfast.http.problems import Refusal
from holdfast.http.routes import Noun
from holdfast.http.service import Service

CONTENT_SECURITY = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"


def principal() -> Principal:
    """Who makes this request."""
    asker: Principal = g.principal
    return asker


def install(app: Flask, service: Service, nouns: list[Noun], meters: Meters) -> None:
    hosts = Hosts(service.settings)
    door = Door(service)
    scopes = {name: route.scope for noun in nouns for name, route in noun.endpoints().items()}

    @app.before_request
    def admit() -> None:
        environ = request.environ
        g.began = perf_counter()
        g.request_id = tracing.request_id(environ.get("HTTP_X_REQUEST_ID"))
        g.traceparent = tracing.traceparent(environ.get("HTTP_TRACEPARENT"))
        meters.enter()
        host = environ.get("HTTP_HOST")
        if host is not None and not hosts.knows(host):
            raise Refusal("unknown-host", "The Host header names no host of this server; list it in HOLDFAST_HOSTS.")
        check_origin(request.method, environ)
        scope = scopes.get(request.endpoint or "")
        if scope is not None:
            g.principal = door.admit(environ.get("HTTP_AUTHORIZATION"), scope)

    @app.after_request
    def finish(response: Response) -> Response:
        headers = response.headers
        headers["X-Content-Type-Options"] = "nosniff"
        headers["X-Request-Id"] = g.request_id
        headers["traceparent"] = g.traceparent
        if "Cache-Control" not in headers:
            headers["Cache-Control"] = "no-store"
        if response.mimetype == "text/html":
            headers.setdefault("Content-Security-Policy", CONTENT_SECURITY)
            headers["Referrer-Policy"] = "no-referrer"
        rule = request.url_rule
        meters.observe(rule.rule if rule else "(none)", request.method, response.status_code, perf_counter() - g.began)
        return response

    @app.teardown_request
    def leave(error: BaseException | None) -> None:
        if "began" in g:
            meters.leave()
