"""Tokens of the HTTP API: `hf_` + 256 random bits + `_` + a checksum, all in letters and digits.

The prefix lets secret scanners find a leaked token. The checksum distinguishes a mistyped token from a revoked one
without a database query. A token contains no hyphen, so a double click selects all of it.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from holdfast.domain.errors import Problem, refused

PREFIX = "hf"
SECRET_BYTES = 32
MAX_DAYS = 3650
SCOPES = ("runs:read", "runs:write", "operate", "admin")

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_LENGTH = 43
_CHECKSUM_LENGTH = 6


class NewToken(NamedTuple):
    """A token to be stored: everything but the secret."""

    id: str
    name: str
    digest: bytes
    hint: str
    scopes: tuple[str, ...]
    created_by: str
    days: float | None


def mint(
    secret: bytes, token_id: str, name: str, scopes: Sequence[str], *, by: str, days: float | None = None
) -> tuple[str, NewToken]:
    """Create a token from 32 random bytes. Return its text, to be shown once, and the record to store."""
    problems = []
    if not 1 <= len(name) <= 64 or not name.isprintable():
        problems.append(Problem("/name", "must be 1 to 64 printable characters"))
    if not scopes or not set(scopes) <= set(SCOPES):
        problems.append(Problem("/scopes", f"must be one or more of {', '.join(SCOPES)}"))
    if days is not None and not 0 < days <= MAX_DAYS:
        problems.append(Problem("/days", f"must be more than 0 and at most {MAX_DAYS}"))
    if problems:
        raise refused(*problems)
    token = write_token(secret)
    kept = tuple(scope for scope in SCOPES if scope in scopes)
    hint = token.split("_")[1][-4:]  # the end of the secret identifies the token in a list
    return token, NewToken(token_id, name, digest_of(token), hint, kept, by, days)


def write_token(secret: bytes) -> str:
    """Return the token for these random bytes."""
    body = _base62(int.from_bytes(secret), _SECRET_LENGTH)
    return f"{PREFIX}_{body}_{_checksum(body)}"


def is_token(text: str) -> bool:
    """Whether the text has the format and checksum of a token. Only the database can tell whether it is valid."""
    prefix, _, rest = text.partition("_")
    body, _, checksum = rest.partition("_")
    return prefix == PREFIX and len(body) == _SECRET_LENGTH and body.isalnum() and checksum == _checksum(body)


def digest_of(token: str) -> bytes:
    return sha256(token.encode()).digest()


def allows(held: frozenset[str], wanted: str) -> bool:
    """Whether these scopes include `wanted`. `admin` includes everything; no other scope implies another."""
    return wanted in held or "admin" in held


def _checksum(body: str) -> str:
    return _base62(crc32(f"{PREFIX}_{body}".encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
