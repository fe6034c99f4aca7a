"""Documents with an ETag: clients that have the current version get a 304, and can wait for a change or the end."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

import orjson

from holdfast.http import reading
from holdfast.http.answers import Answer, etag_of, matches, nothing
from holdfast.http.call import Call

T = TypeVar("T")


def versioned(
    call: Call,
    watched: str,
    read: Callable[[], T],
    document: Callable[[T], dict[str, Any]],
    ended: Callable[[T], bool],
) -> Answer:
    """Answer with a document and its ETag.

    With `?wait=`, answer once the run has ended; if the request names a version, at any change, or with 304 after the
    wait.
    `watched` is the id that the hub checks meanwhile.
    """
    wait, preferred = reading.seconds_to_wait(call, reading.query(call, "wait"))
    known = call.tags()

    def read_version() -> tuple[T, bytes, str, bool]:
        found = read()
        body = orjson.dumps(document(found))
        etag = etag_of(body)
        return found, body, etag, ended(found) or (bool(known) and not matches(etag, known))

    found, body, etag, settled = read_version()
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
                    found, body, etag, settled = read_version()
        finally:
            call.service.streams.leave()
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if not ended(found):
        headers["Retry-After"] = "1"
    if preferred and waited:
        headers["Preference-Applied"] = f"wait={wait:g}"
    return nothing(304, headers) if matches(etag, known) else Answer(body, 200, headers)
