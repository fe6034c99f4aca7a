"""Masking: passwords and tokens in a message are replaced before the message is stored or logged.

The same rule applies to the stored errors of attempts, which HTTP and the command line show, and to log lines.
"""

from __future__ import annotations

import re

HIDDEN = "********"

# user:password@ in the address of a server; password=..., secret=..., token=... in an address, a DSN or a message; and
# the same as members of a dict or of JSON. Neither looks at a text more than once, however long it is.
_ADDRESS = re.compile(r"(?<=://)([^\s/:@]*):([^\s/]+)@")
_SECRET = r"(password|passwd|secret|token|(?:api|access|private)_?key)"  # noqa: S105 - how such names end
_PAIR = re.compile(
    _SECRET + r"""(\s*=\s*|["']\s*:\s*)('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|["']?[^\s&,;'")\]}]+)""",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"\bhf_[0-9A-Za-z_]{20,}")  # one of our own
_NAME = re.compile(_SECRET + "$", re.IGNORECASE)


def mask_secrets(text: str) -> str:
    """The text without the passwords of addresses and without the values of settings that are named like secrets."""
    if "=" in text or ":" in text:
        text = _PAIR.sub(rf"\1\2{HIDDEN}", text)
    if "://" in text:
        text = _ADDRESS.sub(rf"\1:{HIDDEN}@", text)
    if "hf_" in text:
        text = _TOKEN.sub(f"hf_{HIDDEN}", text)
    return text


def is_secret(name: str) -> bool:
    """Whether what has this name is not to be shown."""
    return _NAME.search(name) is not None
