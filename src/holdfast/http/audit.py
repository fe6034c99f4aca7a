"""The log of the API: who did what to which run, and which requests failed."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any

from holdfast.http.call import Call
from holdfast.observe import emit, is_subscribed

log = logging.getLogger("holdfast.http")


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
