"""The guard: checks that every request passes, and headers that every answer gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

from holdfast.domain.errors import DatabaseUnreachable
from holdfast.http.call import Call
from holdfast.http.hosts import Hosts, check_origin
from holdfast.http.principals import UNKNOWN, Authenticator
from holdfast.http.problems import Refusal
from holdfast.http.routes import Noun
from holdfast.http.service import Service

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
