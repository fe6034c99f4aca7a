"""What the API tells the log: who did what to which run. Lines about runs have the fields that a worker's have."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from holdfast.domain.values import RunRecord
from holdfast.http.call import Call
from holdfast.observe import emit, heard

log = logging.getLogger("holdfast.http")


def tell(event: str, call: Call, **fields: Any) -> None:
    """Say that something was done, by whom, and in which request."""
    if heard(event):
        emit(event, **fields, by=call.principal.name, request_id=call.request_id)


def tell_run(event: str, call: Call, run: RunRecord) -> None:
    if heard(event):
        tell(
            event,
            call,
            run_id=run.id,
            payload_hash=run.payload_hash,
            worker_id=run.lease_owner,
            status=str(run.status),
            attempt_count=run.attempt_count,
        )


def tell_failure(error: Exception, request_id: str, *, ours: bool) -> None:
    """Say that a request could not be answered; with the whole trace if that is a mistake of ours."""
    event = "request.failed" if ours else "request.refused"
    if heard(event):
        trace = {"traceback": "".join(traceback.format_exception(error))} if ours else {}
        emit(event, request_id=request_id, error=f"{type(error).__name__}: {error}", **trace)
    elif ours:
        log.error("request %s failed", request_id, exc_info=error)
    else:
        log.warning("request %s was refused: %s", request_id, error)
