"""A call of the API: one request with everything that a view may want to know, handed to it instead of looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from holdfast.domain.tokens import allows
from holdfast.http.bridge import ON_LEAVE
from holdfast.http.principals import ANYONE, Principal
from holdfast.http.service import Service
from holdfast.runtime.settings import Settings
from holdfast.verbs.caller import Caller
from holdfast.verbs.preparation import Submitter

MOST_PARAMETERS = 50


class Call:
    """`environ` is WSGI's; the rest was found out on the way in."""

    __slots__ = ("began", "environ", "principal", "request_id", "service", "settings", "traceparent")

    def __init__(
        self, service: Service, environ: Mapping[str, Any], request_id: str, traceparent: str, began: float
    ) -> None:
        self.service = service
        self.settings: Settings = service.settings
        self.environ = environ
        self.request_id = request_id
        self.traceparent = traceparent
        self.began = began
        self.principal: Principal = ANYONE

    @property
    def caller(self) -> Caller:
        """The caller of verbs: the token, and the trace that the request belongs to."""
        who = self.principal
        return Caller(self.settings, Submitter(who.scope, who.name, self.traceparent))

    @property
    def may_read(self) -> bool:
        """Whether the token may read runs; one that may only change them learns what came of its own requests."""
        return allows(self.principal.scopes, "runs:read")

    def header(self, name: str) -> str | None:
        """A header by its name in WSGI: `HTTP_IF_NONE_MATCH`."""
        found: str | None = self.environ.get(name)
        return found

    def parameters(self) -> list[tuple[str, str]]:
        """What the query says, in order. Raises ValueError if it says too much."""
        raw: str = self.environ.get("QUERY_STRING", "")
        text = raw.encode("latin-1", "replace").decode("utf-8", "replace")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)

    def on_leave(self, callback: Callable[[], None]) -> None:
        """Call this when the client disconnects before the response, if the server can detect it."""
        register = self.environ.get(ON_LEAVE)
        if register is not None:
            register(callback)

    def tags(self) -> frozenset[str]:
        """The entity tags of If-None-Match, compared weakly as RFC 9110 asks."""
        header = self.header("HTTP_IF_NONE_MATCH")
        if not header:
            return frozenset()
        return frozenset(tag.strip().removeprefix("W/") for tag in header.split(",") if tag.strip())
