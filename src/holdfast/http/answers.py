"""Answers: what a view returns. A WSGI callable that is cheap to create, because every request creates one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import orjson
from werkzeug.wsgi import ClosingIterator

from holdfast.domain.records import Page

JSON = "application/json"
STATUS_LINES = {int(status): f"{int(status)} {status.phrase}" for status in HTTPStatus}
BODILESS = (204, 304)

Body = bytes | Iterator[bytes]


class Answer:
    """A status, headers, and a body or its chunks. `on_close` is called once it has been sent or has failed."""

    __slots__ = ("body", "headers", "on_close", "status")

    def __init__(
        self, body: Body, status: int = 200, headers: Mapping[str, str] | None = None, kind: str = JSON
    ) -> None:
        self.body = body
        self.status = status
        self.headers: dict[str, str] = {} if headers is None else dict(headers)
        self.on_close: Callable[[], None] | None = None
        if status not in BODILESS:
            self.headers["Content-Type"] = kind
            if isinstance(body, bytes):
                self.headers["Content-Length"] = str(len(body))

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response(STATUS_LINES[self.status], list(self.headers.items()))
        if isinstance(self.body, bytes):
            return () if environ["REQUEST_METHOD"] == "HEAD" else (self.body,)
        return ClosingIterator(() if environ["REQUEST_METHOD"] == "HEAD" else self.body, self.on_close)


def answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A document as JSON."""
    return Answer(orjson.dumps(document), status, headers)


def items(documents: list[dict[str, Any]], **members: Any) -> Answer:
    return answer({"items": documents, **members})


def page(found: Page[Any], write: Callable[[Any], dict[str, Any]], path: str, given: Mapping[str, str]) -> Answer:
    """A page of a list, with a link to the next one (RFC 8288)."""
    made = items([write(one) for one in found], next_cursor=found.next_cursor)
    if found.next_cursor is not None:
        made.headers["Link"] = f'<{path}?{urlencode({**given, "cursor": found.next_cursor})}>; rel="next"'
    return made


def nothing(status: int, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer without a body."""
    return Answer(b"", status, headers)


def etag_of(body: bytes) -> str:
    """A strong validator, without its quotes: two bodies have the same tag only if they are identical."""
    return sha256(body).hexdigest()[:32]


def digest_header(sha256_digest: bytes) -> str:
    """The value of Repr-Digest or Content-Digest (RFC 9530)."""
    return f"sha-256=:{b64encode(sha256_digest).decode()}:"
