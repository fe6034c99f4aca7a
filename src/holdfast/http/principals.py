"""Who asks. With tokens, whoever holds one; on this machine, until the first is made, everyone who can reach us.

A token is looked up for every request, so one that was revoked is refused at once.
"""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from holdfast.domain.tokens import SCOPES, allows, digest_of, is_token
from holdfast.http.problems import Refusal
from holdfast.http.service import Service
from holdfast.ops.tokens import authenticate, list_tokens

REALM = 'Bearer realm="holdfast"'
# How long it may take until a server that was open asks for the first token ever made.
OPEN_SECONDS = 1.0
MAKE_ONE = "Make one where the database is: holdfast tokens create NAME"


class Principal(NamedTuple):
    """Whoever asks: `scope` says whose idempotency keys these are, `name` is written beside what is done."""

    scope: str
    name: str
    scopes: frozenset[str]


ANYONE = Principal("", "anonymous", frozenset(SCOPES))
STRANGER = Principal("", "unknown", frozenset())


class Door:
    """Lets in those who may do what they ask."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open_until = 0.0
        self._closed = not service.loopback

    def admit(self, authorization: str | None, scope: str) -> Principal:
        """Return who asks, or raise the Refusal that says what is missing."""
        principal = self._principal(authorization)
        if not allows(principal.scopes, scope):
            raise Refusal(
                "insufficient-scope",
                f"This needs the scope {scope}; the token has {', '.join(sorted(principal.scopes))}.",
                headers={"WWW-Authenticate": f'{REALM}, error="insufficient_scope", scope="{scope}"'},
            )
        return principal

    def _principal(self, authorization: str | None) -> Principal:
        if authorization is None:
            if self._is_open():
                return ANYONE
            raise Refusal("unauthenticated", f"This needs a token. {MAKE_ONE}", headers={"WWW-Authenticate": REALM})
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer":
            raise _invalid("The Authorization header has to be: Bearer, and a token.")
        if not is_token(token):
            raise _invalid("This is no token: its form or its checksum is wrong.")
        digest = digest_of(token)
        found = self._service.database.perform(lambda: authenticate(digest))
        if found is None:
            raise _invalid(f"The token is unknown, was revoked, or has expired. {MAKE_ONE}")
        return Principal(f"token:{found.id}", found.name, found.scopes)

    def _is_open(self) -> bool:
        """On loopback, until the first token is made. Whoever revokes the last one wants nobody in, not everyone."""
        if not self._closed and monotonic() >= self._open_until:
            if self._service.database.perform(list_tokens):
                self._closed = True
            self._open_until = monotonic() + OPEN_SECONDS
        return not self._closed


def _invalid(detail: str) -> Refusal:
    return Refusal(
        "unauthenticated",
        detail,
        headers={"WWW-Authenticate": f'{REALM}, error="invalid_token", error_description="{detail}"'},
    )
