"""Documents with an ETag: clients that have the current version get a 304, and can wait for a change or the end."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import orjson
from werkzeug.http import quote_etag

from holdfast.http import reading
from holdfast.http.answers import Answer, etag_of, nothing
from holdfast.http.call import Call
from holdfast.sql.statement import Op


def versioned(
    call: Call, watched: str, make_op: Callable[[], Op[Any]], document: Callable[[Any], dict[str, Any]]
) -> Answer:
    """Answer with a document and its ETag.

    With `?wait=`, answer once the run has ended; if the request names a version, at any change, or with 304 after the
    wait.
    `watched` is the id that the hub checks meanwhile.
    """
    wait, preferred = reading.seconds_to_wait(call, reading.query(call, "wait"))
    known = call.tags()

    def read_version() -> tuple[bool, bytes, str, bool]:
        found = call.service.database.perform(make_op)
        ended, body = found.status.final, orjson.dumps(document(found))
        etag = etag_of(body)
        return ended, body, etag, ended or (bool(known) and not known.contains_weak(etag))

    ended, body, etag, settled = read_version()
    waited = False
    if wait > 0 and not settled and call.service.streams.enter():
        waited, ends = True, monotonic() + wait
        try:
            with call.service.hub.watch(watched) as watch:
                call.on_leave(watch.abandon)
                while not settled and (left := ends - monotonic()) > 0 and not call.service.streams.closing:
                    watch.wait(left)
                    if watch.abandoned:
                        break
                    ended, body, etag, settled = read_version()
        finally:
            call.service.streams.leave()
    headers = {"ETag": quote_etag(etag), "Cache-Control": "private, no-cache"}
    if not ended:
        headers["Retry-After"] = "1"
    if preferred and waited:
        headers["Preference-Applied"] = f"wait={wait:g}"
    return nothing(304, headers) if known.contains_weak(etag) else Answer(body, 200, headers)
