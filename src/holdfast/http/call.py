"""A call to the API: one request with everything that its view may need, and the log of who did what."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Mapping
from random import getrandbits
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

from werkzeug.datastructures import ETags
from werkzeug.http import parse_etags

from holdfast.domain.tokens import allows
from holdfast.http.bridge import ON_LEAVE
from holdfast.http.principals import ANYONE, Principal
from holdfast.http.service import Service
from holdfast.observe import emit, is_subscribed
from holdfast.runtime.settings import Settings
from holdfast.verbs.caller import Caller
from holdfast.verbs.options import Submitter

log = logging.getLogger("holdfast.http")

MOST_PARAMETERS = 50
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Call:
    """A request. `environ` is WSGI's; its ids link it to its log lines, its trace and the run it creates."""

    __slots__ = ("began", "environ", "principal", "request_id", "service", "settings", "traceparent")

    def __init__(self, service: Service, environ: Mapping[str, Any]) -> None:
        self.service = service
        self.settings: Settings = service.settings
        self.environ = environ
        self.request_id = _request_id(environ.get("HTTP_X_REQUEST_ID"))
        self.traceparent = _traceparent(environ.get("HTTP_TRACEPARENT"))
        self.began = perf_counter()
        self.principal: Principal = ANYONE

    @property
    def caller(self) -> Caller:
        """The caller that verbs receive: the token, and the trace that the request belongs to."""
        who = self.principal
        return Caller(self.settings, Submitter(who.scope, who.name, self.traceparent))

    @property
    def may_read(self) -> bool:
        """Whether the token may read runs. A token that may not sees only results of its own requests."""
        return allows(self.principal.scopes, "runs:read")

    def header(self, name: str) -> str | None:
        """A header by its name in WSGI: `HTTP_IF_NONE_MATCH`."""
        found: str | None = self.environ.get(name)
        return found

    def parameters(self) -> list[tuple[str, str]]:
        """The parameters of the query, in order. Raises ValueError if there are too many."""
        raw: str = self.environ.get("QUERY_STRING", "")
        text = raw.encode("latin-1", "replace").decode("utf-8", "replace")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)

    def on_leave(self, callback: Callable[[], None]) -> None:
        """Register a callback for when the client disconnects before the response, if the server can detect that."""
        register = self.environ.get(ON_LEAVE)
        if register is not None:
            register(callback)

    def tags(self) -> ETags:
        """The entity tags of If-None-Match."""
        return parse_etags(self.header("HTTP_IF_NONE_MATCH"))


def _request_id(given: str | None) -> str:
    """The caller's id for this request if it is valid, or else a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return f"{getrandbits(64):016x}"


def _traceparent(given: str | None) -> str:
    """The W3C trace context of this request: a new span in the caller's trace, or in a new trace.

    A malformed header starts a new trace, as the recommendation requires.
    """
    found = _TRACEPARENT.fullmatch(given) if given is not None else None
    span = f"{getrandbits(64) or 1:016x}"
    if found is None or not _is_valid(found):
        return f"00-{getrandbits(128) or 1:032x}-{span}-00"
    return f"00-{found[2]}-{span}-{found[4]}"


def _is_valid(found: re.Match[str]) -> bool:
    version, trace, parent, rest = found[1], found[2], found[3], found[5]
    return version != "ff" and (version != "00" or rest is None) and trace.strip("0") != "" and parent.strip("0") != ""


def log_event(call: Call, event: str, fields: Mapping[str, Any]) -> None:
    """Log what was done, who did it, and in which request."""
    if is_subscribed(event):
        emit(event, **fields, by=call.principal.name, request_id=call.request_id)


def log_failure(error: Exception, request_id: str, *, ours: bool) -> None:
    """Log that a request could not be answered; with the traceback if the server is at fault."""
    event = "request.failed" if ours else "request.refused"
    if is_subscribed(event):
        trace = {"traceback": "".join(traceback.format_exception(error))} if ours else {}
        emit(event, request_id=request_id, error=f"{type(error).__name__}: {error}", **trace)
    elif ours:
        log.error("request %s failed", request_id, exc_info=error)
    else:
        log.warning("request %s was refused: %s", request_id, error)
