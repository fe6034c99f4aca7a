"""Answers: documents as JSON, and the headers that go with them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson
from flask import Response, request

JSON = "application/json"


def answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(document), status, headers, mimetype=JSON)


def items(documents: list[dict[str, Any]], **members: Any) -> Response:
    return answer({"items": documents, **members})


def etag_of(body: bytes) -> str:
    """A strong validator: the same text, and only the same, has the same tag."""
    return f'"{sha256(body).hexdigest()[:32]}"'


def tags_asked() -> frozenset[str]:
    """The entity tags of If-None-Match, compared weakly as RFC 9110 asks."""
    header = request.headers.get("If-None-Match", "")
    return frozenset(tag.strip().removeprefix("W/") for tag in header.split(",") if tag.strip())


def matches(etag: str, asked: frozenset[str]) -> bool:
    return etag in asked or "*" in asked


def digest_header(sha256_digest: bytes) -> str:
    """The value of Repr-Digest or Content-Digest (RFC 9530)."""
    return f"sha-256=:{b64encode(sha256_digest).decode()}:"
