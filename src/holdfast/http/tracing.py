"""The ids that tie a request to its log lines, its trace and the run it makes."""

from __future__ import annotations

import re
from random import getrandbits

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def request_id(asked: str | None) -> str:
    """The caller's id for this request if it is a plain one, else a new one."""
    if asked is not None and _REQUEST_ID.fullmatch(asked):
        return asked
    return f"{getrandbits(64):016x}"


def traceparent(asked: str | None) -> str:
    """The W3C trace context of what happens here: a new span in the caller's trace, or in a new one.

    A header that is malformed starts a new trace, as the recommendation wants.
    """
    found = _TRACEPARENT.fullmatch(asked) if asked is not None else None
    span = f"{getrandbits(64) or 1:016x}"
    if found is None or not _is_valid(found):
        return f"00-{getrandbits(128) or 1:032x}-{span}-00"
    return f"00-{found[2]}-{span}-{found[4]}"


def _is_valid(found: re.Match[str]) -> bool:
    version, trace, parent, rest = found[1], found[2], found[3], found[5]
    return version != "ff" and (version != "00" or rest is None) and trace.strip("0") != "" and parent.strip("0") != ""
