"""Workers: list them, and ask one to stop."""

from __future__ import annotations

from holdfast.documents.others import worker_document
from holdfast.domain.errors import NotFound, Problem, refused
from holdfast.domain.ids import parse_id
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, items
from holdfast.http.call import Call, log_event
from holdfast.http.routes import Noun, routes
from holdfast.verbs import workers as verbs


def index(call: Call) -> Answer:
    status = reading.query(call, "status").get("status")
    if status is not None and status not in verbs.STATUSES:
        raise refused(Problem("/status", f"must be one of {', '.join(verbs.STATUSES)}"))
    found = call.service.database.workers()
    return items([worker_document(worker) for worker in found if status in (None, worker.status)])


def drain(call: Call, worker_id: str) -> Answer:
    reading.query(call)
    reading.optional_object(call, ())
    id_ = parse_id(worker_id)
    if id_ is None or not call.service.database.drain_worker(id_):
        raise NotFound("no live worker has this id")
    log_event(call, "worker.drain_requested", {"worker_id": id_})
    return answer({"id": id_, "status": "draining"}, 202)


NOUN = Noun(
    "workers", "Workers: processes that execute runs.", routes(verbs, {verbs.workers: index, verbs.drain_worker: drain})
)
