"""Workers: see who executes runs, and ask one to stop."""

from __future__ import annotations

from holdfast.documents.others import worker_document
from holdfast.domain.errors import NotFound, Problem
from holdfast.domain.ids import parse_id
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, items
from holdfast.http.call import Call
from holdfast.http.openapi.parts import (
    ID,
    NO_FIELDS,
    in_path,
    in_query,
    json_request,
    listed,
    operation,
    problem,
    record,
    ref,
    says,
)
from holdfast.http.routes import Noun, Route
from holdfast.http.telling import tell

STATUSES = ("active", "idle", "draining", "stopped")


def index(call: Call) -> Answer:
    status = reading.query(call, "status").get("status")
    if status is not None and status not in STATUSES:
        raise reading.refused([Problem("/status", f"must be one of {', '.join(STATUSES)}")])
    found = call.service.database.workers()
    return items([worker_document(worker) for worker in found if status in (None, worker.status)])


def drain(call: Call, worker_id: str) -> Answer:
    here = call.service
    reading.query(call)
    reading.optional_object(call, ())
    id_ = parse_id(worker_id)
    if id_ is None or not here.database.drain_worker(id_):
        raise NotFound("no live worker has this id")
    tell("worker.drain_requested", call, worker_id=id_)
    return answer({"id": id_, "status": "draining"}, 202)


NOUN = Noun(
    "workers",
    "Workers: processes that execute runs.",
    [
        Route(
            "GET",
            "/workers",
            index,
            "runs:read",
            operation(
                "listWorkers",
                "List workers",
                "Live workers, and those that stopped within the last day.",
                parameters=[in_query("status", "Only these.", {"type": "string", "enum": list(STATUSES)})],
                answers={
                    200: says("Newest first.", listed(ref("Worker"))),
                    422: problem("bad-input"),
                },
            ),
        ),
        Route(
            "POST",
            "/workers/{worker_id}/drain",
            drain,
            "operate",
            operation(
                "drainWorker",
                "Drain a worker",
                "The worker claims no more runs, and stops when its runs have ended.",
                parameters=[in_path("worker_id", "The id of a worker.", ID)],
                requestBody=json_request(NO_FIELDS, required=False),
                answers={
                    202: says(
                        "It was asked.",
                        record("A worker.", {"id": ID, "status": {"type": "string", "enum": ["draining"]}}),
                    ),
                    404: problem("not-found"),
                },
            ),
        ),
    ],
)
