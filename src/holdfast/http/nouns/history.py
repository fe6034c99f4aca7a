"""The history of a run: events and logs are sent as lists or as streams."""

from __future__ import annotations

from functools import partial

from holdfast.documents.runs import event_document, log_document
from holdfast.domain.values import RunRecord
from holdfast.http import reading
from holdfast.http.answers import Answer, items
from holdfast.http.call import Call
from holdfast.http.routes import Noun, routes
from holdfast.http.streams import Chunk, Feed, event_stream
from holdfast.ops.history import events_and_run, logs_and_run
from holdfast.verbs import history as verbs

MOST = 2**62
LOG_PAGE = 1000


def _end(run: RunRecord) -> str | None:
    return str(run.status) if run.status.final else None


def events(call: Call, run_id: str) -> Answer:
    given = reading.query(call, "after")
    after = reading.whole(given, "after", 0, 0, MOST)
    id_ = reading.run_id(run_id)

    def feed(last: int) -> Chunk:
        run, found = call.service.database.perform(partial(events_and_run, id_, last))
        return Chunk([(event.seq, event_document(event)) for event in found], _end(run))

    if reading.wants_stream(call):
        return _stream(call, id_, feed, after)
    return items([document for _, document in feed(after).items])


def logs(call: Call, run_id: str) -> Answer:
    given = reading.query(call, "after", "limit")
    after = reading.whole(given, "after", 0, 0, MOST)
    limit = reading.whole(given, "limit", LOG_PAGE, 1, LOG_PAGE)
    id_ = reading.run_id(run_id)

    def feed(last: int) -> Chunk:
        run, found = call.service.database.perform(partial(logs_and_run, id_, last, limit))
        full = len(found) == limit
        return Chunk([(line.seq, log_document(line)) for line in found], None if full else _end(run), more=full)

    if reading.wants_stream(call):
        return _stream(call, id_, feed, after)
    found = feed(after)
    return items([document for _, document in found.items], next_after=found.items[-1][0] if found.more else None)


def _stream(call: Call, run_id: str, feed: Feed, after: int) -> Answer:
    return event_stream(call, run_id, feed, max(after, reading.last_event_id(call)))


NOUN = Noun("history", "What happened to runs, and why.", routes(verbs, {verbs.events: events, verbs.logs: logs}))
