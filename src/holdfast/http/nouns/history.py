"""What happened to a run, and why: events, attempts, logs, the reason it waits, where its result came from."""

from __future__ import annotations

from functools import partial

from holdfast import ops
from holdfast.documents.others import log_document, provenance_document, reason_document
from holdfast.documents.runs import attempt_document, event_document
from holdfast.domain.values import RunRecord
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, items
from holdfast.http.call import Call
from holdfast.http.nouns import history_operations as operations
from holdfast.http.routes import Noun, Route
from holdfast.http.streams import Chunk, Feed, event_stream
from holdfast.ops.history import events_and_run, logs_and_run, provenance_of

MOST = 2**62
LOG_PAGE = 1000


def _end(run: RunRecord) -> str | None:
    return str(run.status) if run.status.final else None


def events(call: Call, run_id: str) -> Answer:
    here = call.service
    given = reading.query(call, "after")
    after = reading.whole(given, "after", 0, 0, MOST)
    id_ = reading.run_id(run_id)

    def feed(last: int) -> Chunk:
        run, found = here.database.perform(partial(events_and_run, id_, last))
        return Chunk([(event.seq, event_document(event)) for event in found], _end(run))

    if reading.wants_stream(call):
        return _stream(call, id_, feed, after)
    return items([document for _, document in feed(after).items])


def logs(call: Call, run_id: str) -> Answer:
    here = call.service
    given = reading.query(call, "after", "limit")
    after = reading.whole(given, "after", 0, 0, MOST)
    limit = reading.whole(given, "limit", LOG_PAGE, 1, LOG_PAGE)
    id_ = reading.run_id(run_id)

    def feed(last: int) -> Chunk:
        run, found = here.database.perform(partial(logs_and_run, id_, last, limit))
        full = len(found) == limit
        return Chunk([(line.seq, log_document(line)) for line in found], None if full else _end(run), more=full)

    if reading.wants_stream(call):
        return _stream(call, id_, feed, after)
    found = feed(after)
    return items([document for _, document in found.items], next_after=found.items[-1][0] if found.more else None)


def _stream(call: Call, run_id: str, feed: Feed, after: int) -> Answer:
    return event_stream(call, run_id, feed, max(after, reading.last_event_id(call)))


def attempts(call: Call, run_id: str) -> Answer:
    reading.query(call)
    found = call.service.database.perform(partial(ops.attempts, reading.run_id(run_id)))
    return items([attempt_document(attempt) for attempt in found])


def why(call: Call, run_id: str) -> Answer:
    reading.query(call)
    found = call.service.database.perform(partial(ops.explain, reading.run_id(run_id)))
    return items([reason_document(reason) for reason in found])


def provenance(call: Call, run_id: str) -> Answer:
    reading.query(call)
    found = call.service.database.perform(partial(provenance_of, reading.run_id(run_id)))
    return answer(provenance_document(found))


NOUN = Noun(
    "history",
    "What happened to runs, and why.",
    [
        Route("GET", "/runs/{run_id}/events", events, "runs:read", operations.EVENTS),
        Route("GET", "/runs/{run_id}/attempts", attempts, "runs:read", operations.ATTEMPTS),
        Route("GET", "/runs/{run_id}/logs", logs, "runs:read", operations.LOGS),
        Route("GET", "/runs/{run_id}/why", why, "runs:read", operations.WHY),
        Route("GET", "/runs/{run_id}/provenance", provenance, "runs:read", operations.PROVENANCE),
    ],
)
