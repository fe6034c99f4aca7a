"""Pages: routes that serve HTML. A page declares its scope as a verb does, and its errors are shown as pages too."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html import escape

import orjson

from holdfast.documents.shapes import TEXT
from holdfast.http.answers import Answer
from holdfast.http.call import Call
from holdfast.http.routes import Route
from holdfast.verbs.openapi import operation

MEDIA_TYPE = "text/html; charset=utf-8"
HTML = {"description": "An HTML page.", "content": {"text/html": {"schema": TEXT}}}


def page(path: str, view: Callable[..., Answer], scope: str | None, operation_id: str, summary: str) -> Route:
    """Declare a page. `scope` is None for a page that everyone may see."""
    return Route("GET", path, view, scope, operation(operation_id, summary, answers={200: HTML}), is_page=True)


def shown(html: str, style: str = "", status: int = 200) -> Answer:
    """A page. Its content security policy allows it to load nothing, and to use only this style."""
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"style-src 'sha256-{digest}'; " if style else ""
    headers = {
        "Content-Security-Policy": f"default-src 'none'; {policy}"
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    }
    return Answer(html.encode(), status, headers, MEDIA_TYPE)


def problem_page(call: Call, problem: Answer) -> Answer:
    """The page for a problem, with its status and headers."""
    assert isinstance(problem.body, bytes)  # noqa: S101 - problem documents are never streamed
    document = orjson.loads(problem.body)
    title, detail = escape(document["title"]), escape(document.get("detail", ""))
    made = shown(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<main><h1>{title}</h1><p>{detail}</p><p>Request {escape(call.request_id)}</p></main></html>",
        status=problem.status,
    )
    made.headers = {**problem.headers, **made.headers}
    return made
