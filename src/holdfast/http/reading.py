"""Reading requests: sizes are checked before a body is read, and everything else before anything is executed."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header, parse_options_header

from holdfast.domain.canonical import pointer as pointer_to
from holdfast.domain.errors import BadInput, JobNotFound, Problem, RunNotFound, refused
from holdfast.domain.ids import parse_id
from holdfast.domain.strict_json import parse
from holdfast.domain.tasks import is_key
from holdfast.domain.times import is_start
from holdfast.http.call import Call
from holdfast.http.problems import Refusal
from holdfast.verbs.openapi import START_TIME
from holdfast.verbs.runs import filter_problems

MAX_WAIT = 60.0

_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]*):")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,99})?", re.ASCII)


def body_bytes(call: Call) -> bytes:
    """The body of the request, at most as large as the settings allow."""
    limit = call.settings.max_body_bytes
    environ = call.environ
    length = environ.get("CONTENT_LENGTH")
    if length:
        if not length.isascii() or not length.isdigit():
            raise Refusal("bad-request", "Content-Length is not a number.")
        if len(length) > 18 or int(length) > limit:
            raise _too_large(limit)
        room = int(length)
    elif environ.get("wsgi.input_terminated"):
        room = limit + 1  # chunked: its size is known only at the end
    else:
        return b""
    parts: list[bytes] = []
    while room and (part := environ["wsgi.input"].read(room)):
        parts.append(part)
        room -= len(part)
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(body) > limit:
        raise _too_large(limit)
    if length and room:
        raise Refusal("bad-request", "The body is shorter than its Content-Length.")
    return body


def json_body(call: Call, around: int = 1) -> Any:
    """The body as a JSON value that can be stored; raises an error that says what is wrong with it.

    The limit on nesting applies to parameters; `around` is the number of levels of the body that enclose them.
    """
    _check_media_type(call)
    body = body_bytes(call)
    digest = call.header("HTTP_CONTENT_DIGEST")
    if digest is not None:
        _check_digest(digest, body)
    return parse(body, max_depth=call.settings.max_json_depth, around=around)


def optional_object(call: Call, fields: Collection[str]) -> dict[str, Any]:
    """The body as an object with only these fields; an empty body counts as an empty object."""
    if not call.environ.get("CONTENT_LENGTH") and not call.header("HTTP_TRANSFER_ENCODING"):
        return {}
    if call.environ.get("CONTENT_LENGTH") == "0":
        return {}
    return checked_object(json_body(call), fields)


def checked_object(value: Any, fields: Collection[str], pointer: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput("the body must be a JSON object", [Problem(pointer, "must be an object")])
    unknown = [name for name in value if name not in fields]
    if unknown:
        problems = [Problem(pointer + pointer_to([name]), "unknown field") for name in unknown[:20]]
        raise BadInput(f"unknown fields; known fields: {', '.join(fields) or 'none'}", problems)
    return value


def _check_media_type(call: Call) -> None:
    given = call.environ.get("CONTENT_TYPE", "")
    if given != "application/json":
        kind, options = parse_options_header(given)
        if kind.lower() != "application/json":
            raise Refusal("unsupported-media-type", "Send the body as application/json.")
        if options.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
            raise Refusal("unsupported-media-type", "Send JSON as UTF-8.")
    encoding = call.header("HTTP_CONTENT_ENCODING")
    if encoding is not None and encoding.lower() != "identity":
        raise Refusal("unsupported-media-type", "Send the body uncompressed.")


def _check_digest(header: str, body: bytes) -> None:
    found = _DIGEST.search(header)
    if found is None:
        return  # another algorithm, which RFC 9530 allows servers to ignore
    try:
        given = b64decode(found[1], validate=True)
    except ValueError:
        given = b""
    if given != sha256(body).digest():
        raise Refusal("bad-digest", "The body's SHA-256 is not the one in Content-Digest.")


def _too_large(limit: int) -> Refusal:
    return Refusal("body-too-large", f"The body is larger than {limit} bytes (HOLDFAST_MAX_BODY_BYTES).")


def idempotency_key(call: Call) -> str | None:
    """The Idempotency-Key, bare or as a quoted string; both are the same key."""
    given = call.header("HTTP_IDEMPOTENCY_KEY")
    if given is None:
        return None
    most = call.settings.max_key_length
    if len(given) >= 2 and given[0] == given[-1] == '"':
        given = given[1:-1]
    if is_key(given, most):
        return given
    raise Refusal("bad-key", f"Send one Idempotency-Key of 1 to {most} visible ASCII characters.")


def no_idempotency_key(call: Call, instead: str) -> None:
    """Refuse a key that would have no effect, because the sender relies on it. `instead` says what to use."""
    if call.header("HTTP_IDEMPOTENCY_KEY") is not None:
        raise Refusal("bad-key", f"An Idempotency-Key is not accepted here. {instead}")


def query(call: Call, *names: str) -> Mapping[str, str]:
    """The query parameters; each must be known and given only once."""
    if not call.environ.get("QUERY_STRING"):
        return {}
    try:
        given = call.parameters()
    except ValueError:
        raise refused(Problem("", "too many parameters")) from None
    found: dict[str, str] = {}
    problems = []
    for name, value in given:
        if name not in names:
            known = f"known parameters: {', '.join(names)}" if names else "this call has no parameters"
            problems.append(Problem(pointer_to([name]), f"unknown parameter; {known}"))
        elif name in found:
            problems.append(Problem(f"/{name}", "given more than once"))
        elif "\0" in value:
            problems.append(Problem(f"/{name}", "contains a NUL character"))
        found[name] = value
    if problems:
        raise refused(*problems)
    return found


def page_query(call: Call, *names: str) -> tuple[Mapping[str, str], int]:
    """The filters and the cursor of a list, checked, and the page size."""
    given = query(call, *names, "cursor", "limit")
    limit = whole(given, "limit", call.settings.page, 1, call.settings.max_page)
    problems = filter_problems(given.get("status"), given.get("job_id"), given.get("cursor"))
    if problems:
        raise refused(*problems)
    return given, limit


def whole(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
        raise refused(Problem(f"/{name}", f"must be a whole number from {least} to {most}"))
    return int(text)


def seconds_to_wait(call: Call, given: Mapping[str, str]) -> tuple[float, bool]:
    """How long the caller wants to wait, by `?wait=` or `Prefer: wait=`; and whether it was the latter."""
    text = given.get("wait")
    if text is not None:
        seconds = _seconds(text.removesuffix("s"))
        if seconds is None or seconds > MAX_WAIT:
            raise refused(Problem("/wait", f"must be a number of seconds from 0 to {MAX_WAIT:g}"))
        return seconds, False
    for preference in (call.header("HTTP_PREFER") or "").split(","):
        name, _, value = preference.strip().partition("=")
        if name.strip().lower() == "wait":
            preferred = _seconds(value.strip().strip('"'))
            return (0.0, False) if preferred is None else (min(preferred, MAX_WAIT), True)
    return 0.0, False


def _seconds(text: str) -> float | None:
    return float(text) if _SECONDS.fullmatch(text) else None


def run_id(text: str) -> str:
    found = parse_id(text)
    if found is None:
        raise RunNotFound("no run has this id: an id is a UUID such as 01994c3e-7d1c-7c62-bd1b-0e2d1c5f6a7b")
    return found


def job_id(text: str) -> str:
    found = parse_id(text)
    if found is None:
        raise JobNotFound("no job has this id: an id is a UUID")
    return found


def queue_name(text: str) -> str:
    if not 1 <= len(text) <= 255 or "\0" in text:
        raise refused(Problem("/name", "must be 1 to 255 characters"))
    return text


# The parser of each path parameter.
SUBJECTS: dict[str, Callable[[str], str]] = {"run_id": run_id, "job_id": job_id, "name": queue_name}


def field(value: Any, name: str, schema: Mapping[str, Any]) -> Any:
    """An optional field of a body, as its schema describes it."""
    if value is None:
        return None
    if schema == START_TIME:
        return start(value, f"/{name}")
    most = schema.get("maxLength", 255)
    if "minLength" in schema and (not isinstance(value, str) or not 1 <= len(value) <= most):
        raise refused(Problem(f"/{name}", f"must be 1 to {most} characters"))
    return value


def start(value: Any, pointer: str) -> datetime | timedelta:
    """A time in RFC 3339 within the years that every client can read, or a number of seconds from now."""
    found: datetime | timedelta | None = None
    with suppress(ValueError, OverflowError):
        if isinstance(value, str) and _RFC3339.fullmatch(value):
            found = datetime.fromisoformat(value.upper())
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = timedelta(seconds=value)
    if found is None or not is_start(found):
        times = "a time such as 2027-01-31T08:00:00Z (RFC 3339), from 1900 to 9998"
        raise refused(Problem(pointer, f"must be {times}, or a number of seconds from now, at most 100 years"))
    return found


def last_event_id(call: Call) -> int:
    """The last item that the caller received of a stream; 0 if the header cannot be parsed."""
    text = call.header("HTTP_LAST_EVENT_ID") or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


def wants_stream(call: Call) -> bool:
    """Whether the caller prefers server-sent events to JSON."""
    header = call.header("HTTP_ACCEPT") or ""
    accepted = parse_accept_header(header, MIMEAccept)
    stream, json = accepted.quality("text/event-stream"), accepted.quality("application/json")
    return "text/event-stream" in header and stream >= json
