"""Parse JSON text from outside: every value returned can be stored and hashed, everything else is rejected.

orjson is fast, but it keeps the last of duplicate keys, rounds integers beyond 64 bits to doubles, accepts NUL and
allows deeper nesting. So the text is first searched for signs of these, without a loop in Python. If there is one, or
if orjson rejects the text, the standard parser reads it again, slowly, and reports each problem with its location. A
sign may be a false positive (an escaped colon, a string of twenty digits): that costs time, never correctness.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from holdfast.domain.canonical import INTEGERS, MAX_DEPTH, Refused, check, pointer, refusal, written_as_double
from holdfast.domain.errors import NotCanonical, Problem

_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_NINETEEN_DIGITS = b"0" * 19
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


class NotJson(NotCanonical):
    """The text is not JSON: its syntax or encoding is invalid."""


def parse(data: bytes | str, *, max_depth: int = MAX_DEPTH, around: int = 0) -> Any:
    """Parse JSON text. Raise NotJson for invalid JSON, NotCanonical with pointers for values that are not accepted.

    `around` levels more than `max_depth` are accepted: they contain the values that the limit applies to.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _parse_exactly(data, max_depth, around)
    if _suspicious(data, value, max_depth + around):
        return _parse_exactly(data, max_depth, around)
    return value


def _suspicious(data: bytes | str, value: Any, max_depth: int) -> bool:
    raw = data.encode() if isinstance(data, str) else data
    if ord("\\") in raw and (b"\\u0000" in raw or b"\\u003" in raw):
        return True
    if _NINETEEN_DIGITS in raw.translate(_ZEROS):
        return True
    if raw.count(b"[") + raw.count(b"{") > max_depth and _deeper(value, max_depth):
        return True
    try:
        again = orjson.dumps(value)
    except TypeError:
        return True
    # Each dropped duplicate removes at least one colon; colons in strings remain.
    return raw.count(b":") != again.count(b":")


def _deeper(value: dict[str, Any] | list[Any], room: int) -> bool:
    if not room:
        return True
    for item in value.values() if type(value) is dict else value:
        if (type(item) is list or type(item) is dict) and _deeper(item, room - 1):
            return True
    return False


def _parse_exactly(data: bytes | str, max_depth: int, around: int) -> Any:
    text = _decode(data)
    _refuse_deep(text, max_depth, around)
    value = _load(text)
    check(value, max_depth + around)
    return value


def _decode(data: bytes | str) -> str:
    try:
        text = data if isinstance(data, str) else data.decode()
    except UnicodeDecodeError as error:
        raise _not_json(f"byte {error.start} is not valid UTF-8") from None
    if text.startswith("\ufeff"):
        raise _not_json("it starts with a byte order mark; send UTF-8 without one")
    return text


def _load(text: str) -> Any:
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_double, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        raise _not_json(f"{error.msg} (line {error.lineno}, column {error.colno})") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                members[key] = Refused("the key appears more than once; keep one of them")
            seen.add(key)
    return members


def _integer(digits: str) -> Any:
    if len(digits) <= 22:  # longer numbers are certainly out of range, and expensive to convert
        value = int(digits)
        if INTEGERS[0] <= value <= INTEGERS[1]:
            return value
        if written_as_double(value):
            return float(value)
    return Refused("the integer is outside the range -2^63 to 2^64-1; send it as a string")


def _double(digits: str) -> Any:
    value = float(digits)
    return value if math.isfinite(value) else Refused("the number is too large for a double; send it as a string")


def _constant(name: str) -> Refused:
    return Refused(f"{name} is not JSON; send null or leave the field out")


def _refuse_deep(text: str, max_depth: int, around: int) -> None:
    if text.count("[") + text.count("{") <= max_depth + around:
        return
    closers: list[str] = []
    for token in _STRING_OR_BRACKET.finditer(text):
        first = text[token.start()]
        if first == '"':
            continue
        if first in "]}":
            if not closers or closers.pop() != first:
                return  # invalid syntax, which the parser describes better
        elif len(closers) >= max_depth + around:
            # Cut the text here and close all open brackets; the path to the last value is the path of the bracket.
            shallow = _load(text[: token.start()] + "0" + "".join(reversed(closers)))
            detail = f"nested more than {max_depth} levels deep; reduce the nesting"
            raise refusal([Problem(pointer(_last_path(shallow)), detail)])
        else:
            closers.append("]" if first == "[" else "}")


def _last_path(value: Any) -> list[str | int]:
    path: list[str | int] = []
    while isinstance(value, dict | list) and value:
        step: Any = next(reversed(value)) if isinstance(value, dict) else len(value) - 1
        path.append(step)
        value = value[step]
    return path


def _not_json(what: str) -> NotJson:
    return NotJson(f"this is not JSON: {what}", [Problem("", what)])
