"""How a run ends: its result, a cancel, a retry."""

from __future__ import annotations

from base64 import b64decode
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256

from holdfast import ops
from holdfast.documents.shapes import record
from holdfast.domain.errors import HoldfastError, Problem, refused
from holdfast.domain.records import ResultRecord
from holdfast.domain.states import Status
from holdfast.domain.times import START, is_start
from holdfast.domain.values import RunRecord
from holdfast.verbs import forms
from holdfast.verbs.caller import Caller
from holdfast.verbs.forms import Form, Reply
from holdfast.verbs.openapi import (
    ETAG,
    RETRY_AFTER,
    RUN,
    RUN_LINKS,
    START_TIME,
    UNCHANGED,
    VERSION,
    WITH_REASON,
    header,
    json_request,
    problem,
    says,
)
from holdfast.verbs.subjects import run_id
from holdfast.verbs.verb import Command, CommandOption, Endpoint, Event, Hints, MakeOp, verb


def run_event(name: str, run: RunRecord) -> Event:
    """A log line about a run, with the fields that a worker's lines have."""
    return Event(
        name,
        {
            "run_id": run.id,
            "payload_hash": run.payload_hash,
            "worker_id": run.lease_owner,
            "status": str(run.status),
            "attempt_count": run.attempt_count,
        },
    )


def _read_result(reply: Reply) -> ResultRecord:
    digest = reply.headers.get("repr-digest", "")
    if digest.startswith("sha-256=:") and b64decode(digest[9:-1]) != sha256(reply.body).digest():
        raise HoldfastError("the result was damaged in transit: its SHA-256 differs; try again")
    return ResultRecord(reply.body.decode(), None, None, None)


@verb(
    Endpoint("GET /runs/{run_id}/result", "runs:read", "getResult", "Read a result"),
    "The value that the task returned, without an envelope.",
    parameters=[VERSION],
    answers={
        200: says(
            "The result.", {}, headers={**ETAG, "Repr-Digest": header("The SHA-256 of the response body (RFC 9530).")}
        ),
        **UNCHANGED,
        409: problem("run-not-finished", "run-failed", "run-cancelled", headers=RETRY_AFTER),
        410: problem("result-pruned"),
        503: problem("too-many-streams", "database-unreachable", headers=RETRY_AFTER),
    },
    form=Form(lambda found: found, _read_result),
)
def result_record(caller: Caller, /, run: object) -> MakeOp[ResultRecord]:
    """Where the result of a run is."""
    return partial(ops.result, run_id(run))


@verb(
    Endpoint("POST /runs/{run_id}/cancel", "runs:write", "cancelRun", "Cancel a run"),
    "A pending run ends immediately. A running one is asked to stop, and can then only end CANCELLED.",
    requestBody=WITH_REASON,
    answers={
        200: says("The run is cancelled.", RUN, links=RUN_LINKS),
        202: says("The run was asked to stop.", RUN, links=RUN_LINKS),
        409: problem("run-ended"),
        422: problem("bad-input"),
    },
    form=forms.RUN,
    status=lambda run: 200 if run.status is Status.CANCELLED else 202,
    event=lambda run: run_event("run.cancelled" if run.status is Status.CANCELLED else "run.cancel_requested", run),
    rings=lambda run: Hints([f"stop:{run.lease_owner}"]) if run.lease_owner else None,
    command=Command(
        "Cancel runs: pending ones end immediately, running ones are asked to stop.",
        says=lambda run: "asked to stop" if run.status is Status.RUNNING else str(run.status),
        options=(CommandOption("reason", "Stored with the run."),),
    ),
)
def cancel(caller: Caller, /, run: object, reason: str | None = None) -> MakeOp[RunRecord]:
    """Cancel a run: immediately if it is pending, otherwise it is asked to stop."""
    return partial(ops.cancel, run_id(run), reason or f"cancelled by {caller.name}")


@verb(
    Endpoint("POST /runs/{run_id}/postpone", "runs:write", "postponeRun", "Postpone a run"),
    "A pending run starts no earlier than this time. It still waits for its dependencies.",
    requestBody=json_request(record("The earliest start.", {"until": START_TIME})),
    answers={
        200: says("The run is postponed.", RUN, links=RUN_LINKS),
        409: problem("run-ended"),
        422: problem("bad-input"),
    },
    form=forms.RUN,
    event=lambda run: run_event("run.postponed", run),
    rings=lambda run: Hints([run.queue]),
    command=Command(
        "Postpone pending runs until a given time.",
        says=lambda run: "postponed",
        options=(CommandOption("until", "A time such as 2027-01-31T08:00:00Z, or a delay such as 10m.", "time"),),
    ),
)
def postpone(
    caller: Caller, /, run: object, until: datetime | timedelta | None = None, by: str | None = None
) -> MakeOp[RunRecord]:
    """Make a pending run start no earlier than `until`, a time or a delay. Raises RunEnded if it is not pending."""
    if until is None or not is_start(until):
        raise refused(Problem("/until", START))
    return partial(ops.postpone, run_id(run), until, by or caller.name)


@verb(
    Endpoint("POST /runs/{run_id}/retry", "runs:write", "retryRun", "Retry a run"),
    "Reopens a FAILED or CANCELLED run: it is PENDING again, with its full number of attempts.",
    answers={200: says("The run is pending again.", RUN, links=RUN_LINKS), 409: problem("run-ended", "job-ended")},
    form=forms.RUN,
    event=lambda run: run_event("run.reopened", run),
    rings=lambda run: Hints([run.queue], [run]),
    repeatable=False,
    command=Command(
        "Reopen FAILED or CANCELLED runs, with their full number of attempts.", says=lambda run: str(run.status)
    ),
)
def retry(caller: Caller, /, run: object, by: str | None = None) -> MakeOp[RunRecord]:
    """Reopen a FAILED or CANCELLED run. The API records the name of the token instead of `by`."""
    return partial(ops.retry, run_id(run), by or caller.name)
