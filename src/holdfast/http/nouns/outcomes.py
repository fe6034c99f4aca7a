"""How a run ends: its result, a cancel, a retry."""

from __future__ import annotations

from functools import partial
from hashlib import sha256

from holdfast import ops
from holdfast.domain.records import ResultRecord
from holdfast.domain.states import Status
from holdfast.domain.values import StoredResult
from holdfast.http import reading
from holdfast.http.answers import Answer, answer, digest_header, etag_of, matches, nothing
from holdfast.http.call import Call
from holdfast.http.nouns import runs_operations as operations
from holdfast.http.routes import Noun, Route
from holdfast.http.service import Service
from holdfast.http.showing import changed_run
from holdfast.http.telling import tell_run


def result(call: Call, run_id: str) -> Answer:
    here = call.service
    reading.query(call)
    found = here.database.perform(partial(ops.result, reading.run_id(run_id)))
    etag, digest, size = _described(found)
    headers = {
        "ETag": etag,
        "Repr-Digest": digest_header(digest),
        "Cache-Control": "private, no-cache",
    }
    if matches(etag, call.tags()):
        return nothing(304, headers)
    if found.ref is None:
        return Answer(_text(found), 200, headers)
    return _sent_in_pieces(here, StoredResult(found.ref, size, digest.hex()), headers)


def _described(found: ResultRecord) -> tuple[str, bytes, int]:
    """The tag, the digest and the size of a result."""
    if found.ref is None:
        body = _text(found)
        return etag_of(body), sha256(body).digest(), len(body)
    return f'"{(found.sha256 or "")[:32]}"', bytes.fromhex(found.sha256 or ""), found.size or 0


def _text(found: ResultRecord) -> bytes:
    return (found.text or "null").encode()


def _sent_in_pieces(here: Service, stored: StoredResult, headers: dict[str, str]) -> Answer:
    """What is stored outside of Postgres is never whole in memory. It holds a thread until the client has it."""
    here.results_sent.require("large results are being sent, which is all there is room for. Come back later.")
    try:
        answer = Answer(here.open_result(stored), 200, headers | {"Content-Length": str(stored.size)})
    except BaseException:
        here.results_sent.leave()
        raise
    answer.on_close = here.results_sent.leave
    return answer


def cancel(call: Call, run_id: str) -> Answer:
    here = call.service
    reading.query(call)
    said = reading.optional_object(call, ("reason",))
    reason = reading.short_text(said.get("reason"), "/reason") or f"cancelled by {call.principal.name}"
    run = here.database.perform(partial(ops.cancel, reading.run_id(run_id), reason))
    here.hub.wake(run.id)
    if run.status is Status.CANCELLED:
        tell_run("run.cancelled", call, run)
        return answer(changed_run(call, run))
    tell_run("run.cancel_requested", call, run)
    if run.lease_owner:
        here.database.ring((f"stop:{run.lease_owner}",))
    return answer(changed_run(call, run), 202)


def retry(call: Call, run_id: str) -> Answer:
    here = call.service
    reading.query(call)
    reading.optional_object(call, ())
    run = here.database.perform(partial(ops.retry, reading.run_id(run_id), call.principal.name), repeatable=False)
    here.database.ring((run.queue,), (run,))
    here.hub.wake(run.id)
    tell_run("run.reopened", call, run)
    return answer(changed_run(call, run))


NOUN = Noun(
    "outcomes",
    "How runs end.",
    [
        Route("GET", "/runs/{run_id}/result", result, "runs:read", operations.RESULT),
        Route("POST", "/runs/{run_id}/cancel", cancel, "runs:write", operations.CANCEL),
        Route("POST", "/runs/{run_id}/retry", retry, "runs:write", operations.RETRY),
    ],
)
