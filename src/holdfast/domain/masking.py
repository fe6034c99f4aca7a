"""Masking replaces passwords and tokens in a message before the message is stored or logged.

The same rule applies to the stored errors of attempts, which HTTP and the command line show, and to log lines.
"""

from __future__ import annotations

import re

HIDDEN = "********"

_SECRET = r"(?:pass(?:word|wd|phrase)|secret|token|(?:api|access|private|secret)[_-]?key)"  # noqa: S105 - how such names end
_QUOTED = r"""[bru]{0,2}(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|['"][^\r\n]*)|\\+(?:'[^'\\]*\\+'|"[^"\\]*\\+")"""
_BARE = r"""[^\s&,;'")\]}]+"""

# password=..., "secret": ..., token: ... in a DSN, an address, JSON, a dict or a message; and the header Authorization,
# whose value is two words, the first of which may be shown if it is the name of a scheme. No part of the pattern begins
# with a repetition, and a match consumes everything it has examined, so that the time is linear in the text's length.
_PAIR = re.compile(
    rf"""((?:(?<!unexpected[ ]){_SECRET}|(authorization))\\*["']?[^\S\n]*(?:=>?|:)[^\S\n]*)"""
    rf"""(?:{_QUOTED}|(?(2)((?:Bearer|Basic|Digest|Token|Negotiate)[ ]+)?{_BARE}(?(3)|(?:[ ]+{_BARE})?)|{_BARE}))""",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?<=://)\S+")
_PASSWORD = re.compile(r"[^/:@?#]*:")
# A port: in the address of a website, or in an address that ends before the next @.
_WEB_PORT = re.compile(r"[^/:@?#]*:\d+[/?#]")
_PORT = re.compile(r"""[^/:@?#]*:\d+(?:/[^@"'<>]*)?["'<>]""")
_TOKEN = re.compile(r"\bhf_[0-9A-Za-z_]{20,}")  # a Holdfast token
_NAME = re.compile(_SECRET + "$", re.IGNORECASE)

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_PLACE = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:@\[\]]*)(?::\d*)?")
_PARAMETER = re.compile(rf"(?<=[?&])([^=&]*(?:{_SECRET}|%)[^=&]*)=[^&]*", re.IGNORECASE)


def mask_secrets(text: str) -> str:
    """Return the text without passwords in addresses and without values whose names look like secrets."""
    if "=" in text or ":" in text:
        text = _PAIR.sub(lambda found: f"{found[1]}{found[3] or ''}{HIDDEN}", text)
    if "://" in text and "@" in text:
        text = _ADDRESS.sub(_hide_password, text)
    if "hf_" in text:
        text = _TOKEN.sub(f"hf_{HIDDEN}", text)
    return text


def is_secret(name: str) -> bool:
    """Whether the value of a setting with this name must be hidden."""
    return _NAME.search(name) is not None


def mask_address(address: str) -> str:
    """Return a server's address without its passwords; an ambiguous address is hidden completely."""
    scheme, separator, rest = address.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return HIDDEN
    rest = _PARAMETER.sub(rf"\1={HIDDEN}", rest)
    user, at, place = rest.rpartition("@")
    if any(_PLACE.fullmatch(one) is None for one in re.split("[/?#]", place, maxsplit=1)[0].split(",")):
        return HIDDEN
    name, colon, _ = user.partition(":")
    if re.search(r"[\s/?#@]", name):
        name, colon = HIDDEN, ""
    return f"{scheme}://{name}{colon}{HIDDEN if colon else ''}{at}{place}"


def _hide_password(found: re.Match[str]) -> str:
    """Mask the part after `://`, up to a space. It may contain other addresses; the password ends at the last @."""
    run = found[0]
    end = run.rfind("@")
    start, scheme = 0, found.string[max(0, found.start() - 8) : found.start() - 3]
    while start < end:
        password = _PASSWORD.match(run, start, end)
        port = (_WEB_PORT if scheme.lower().endswith(("http", "https")) else _PORT).match(run, start)
        if password and not port:
            return f"{run[: password.end()]}{HIDDEN}{run[end:]}"
        after = run.find("://", port.end() if port else start)
        if after < 0:
            break
        start, scheme = after + 3, run[max(0, after - 5) : after]
    return run
