"""Masking: passwords and tokens in a message are replaced before the message is stored or logged.

The same rule applies to the stored errors of attempts, which HTTP and the command line show, and to log lines.
"""

from __future__ import annotations

import re

HIDDEN = "********"

# user:password@ in a URL; and password=..., secret=..., token=... in a URL, a DSN or a message.
_ADDRESS = re.compile(r"(?<=://)([^\s/:@]*):([^\s/@]+)@")
_PAIR = re.compile(
    r"(?<![A-Za-z0-9])([A-Za-z0-9_-]*(?:password|passwd|secret|token|api_?key))(\s*=\s*)('[^']*'|\"[^\"]*\"|[^\s&,;'\")\]}]+)",
    re.IGNORECASE,
)


def mask_secrets(text: str) -> str:
    """Return the text without passwords in URLs and without values whose names indicate secrets."""
    if "=" in text:
        text = _PAIR.sub(rf"\1\2{HIDDEN}", text)
    if "://" in text:
        text = _ADDRESS.sub(rf"\1:{HIDDEN}@", text)
    return text
