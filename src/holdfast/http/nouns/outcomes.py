"""How a run ends: results are sent as stored, large ones in chunks."""

from __future__ import annotations

from functools import partial
from hashlib import sha256

from werkzeug.http import quote_etag

from holdfast import ops
from holdfast.domain.records import ResultRecord
from holdfast.domain.values import StoredResult
from holdfast.http import reading
from holdfast.http.answers import Answer, digest_header, etag_of, nothing
from holdfast.http.call import Call
from holdfast.http.routes import Noun, routes
from holdfast.http.service import Service
from holdfast.verbs import outcomes as verbs


def result(call: Call, run_id: str) -> Answer:
    reading.query(call)
    found = call.service.database.perform(partial(ops.result, reading.run_id(run_id)))
    etag, digest, size = _described(found)
    headers = {"ETag": quote_etag(etag), "Repr-Digest": digest_header(digest), "Cache-Control": "private, no-cache"}
    if call.tags().contains_weak(etag):
        return nothing(304, headers)
    if found.ref is None:
        return Answer(_text(found), 200, headers)
    return _sent_in_pieces(call.service, StoredResult(found.ref, size, digest.hex()), headers)


def _described(found: ResultRecord) -> tuple[str, bytes, int]:
    """The tag, the digest and the size of a result."""
    if found.ref is None:
        body = _text(found)
        return etag_of(body), sha256(body).digest(), len(body)
    return (found.sha256 or "")[:32], bytes.fromhex(found.sha256 or ""), found.size or 0


def _text(found: ResultRecord) -> bytes:
    return (found.text or "null").encode()


def _sent_in_pieces(service: Service, stored: StoredResult, headers: dict[str, str]) -> Answer:
    """Send a result from the result store in chunks. It occupies a thread until the client has received it."""
    service.results_sent.require("large results are being sent, which is the limit. Try again later.")
    try:
        answer = Answer(
            service.database.runtime.store.chunks(stored), 200, headers | {"Content-Length": str(stored.size)}
        )
    except BaseException:
        service.results_sent.leave()
        raise
    answer.on_close = service.results_sent.leave
    return answer


NOUN = Noun("outcomes", "How runs end.", routes(verbs, {verbs.result_record: result}))
