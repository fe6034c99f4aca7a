"""Error messages about database URLs that do not reveal passwords.

The messages of libpq quote parts of the URL. If a password contains characters with a meaning in URLs, some of these
parts belong to the password. Such messages are replaced.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from holdfast.domain.masking import HIDDEN, mask_address

ENCODE = "in a user name or password, write % as %25, @ as %40, / as %2F, # as %23, ? as %3F and a space as %20"


def why_unusable(url: str, message: str) -> str:
    """Return why libpq cannot parse this URL; `message` is libpq's."""
    if "://" not in url:
        return "it must be postgresql://user:password@host:port/name, or name=value pairs such as host=db dbname=name"
    if mask_address(url) == url:
        return message
    if re.search(r"%(?![0-9A-Fa-f]{2})", url):
        return f"it contains a % that is not part of an escape; {ENCODE}"
    if re.search(r"\s", url):
        return f"it contains a space; {ENCODE}"
    return f"its host, port or parameters are not valid; {ENCODE}"


def quotable(url: str, message: str) -> str:
    """Return the message of libpq or the server if no part of it can come from the password, or else a replacement."""
    try:
        known = conninfo_to_dict(url)
    except ProgrammingError:
        return why_unusable(url, message)
    password = str(known.get("password") or "")
    if "://" in url and not _is_read_as_written(url, password):
        return f"the URL is ambiguous; {ENCODE}"
    return message.replace(password, HIDDEN) if len(password) > 3 else message


def _is_read_as_written(url: str, password: str) -> bool:
    """Whether libpq uses the text before the last @ as the password."""
    if mask_address(url) == HIDDEN:
        return False
    user, at, _ = url.partition("://")[2].rpartition("@")
    _, colon, written = user.partition(":")
    if colon:
        return unquote(written) == password
    return not at or not re.search("[/?#@]", user)
