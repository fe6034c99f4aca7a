"""Masking: passwords and tokens that ended up in a message are replaced before it is stored or logged.

One rule for every place: the error of an attempt in its record, and with it over HTTP and on the command line, and each
line of the log.
"""

from __future__ import annotations

import re

HIDDEN = "********"

# user:password@ in the address of a server; and password=..., secret=..., token=... in an address, a DSN or a message.
_ADDRESS = re.compile(r"(?<=://)([^\s/:@]*):([^\s/@]+)@")
_PAIR = re.compile(
    r"(?<![A-Za-z0-9])([A-Za-z0-9_-]*(?:password|passwd|secret|token|api_?key))(\s*=\s*)('[^']*'|\"[^\"]*\"|[^\s&,;'\")\]}]+)",
    re.IGNORECASE,
)


def mask_secrets(text: str) -> str:
    """The text without the passwords of addresses and without the values of settings that are named like secrets."""
    if "=" in text:
        text = _PAIR.sub(rf"\1\2{HIDDEN}", text)
    if "://" in text:
        text = _ADDRESS.sub(rf"\1:{HIDDEN}@", text)
    return text
