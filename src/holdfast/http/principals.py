"""Principals: who makes a request, identified by a token in the Authorization header or in a session cookie.

On this machine, until the first token is created, everyone who can reach the server may do everything. A token is
looked up for every request, so one that was revoked is refused at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple

from holdfast.domain.tokens import SCOPES, allows, digest_of, is_token
from holdfast.http.problems import Refusal
from holdfast.http.service import Service
from holdfast.http.session import token_of
from holdfast.ops.tokens import authenticate, list_tokens

REALM = 'Bearer realm="holdfast"'
# The longest time until an open server starts to require the first token ever created.
OPEN_SECONDS = 1.0
CREATE_ONE = "Create one where the database is: holdfast tokens create NAME"


class Principal(NamedTuple):
    """Who makes a request: `scope` is the owner of its idempotency keys, `name` is recorded with its changes."""

    scope: str
    name: str
    scopes: frozenset[str]


ANYONE = Principal("", "anonymous", frozenset(SCOPES))
UNKNOWN = Principal("", "unknown", frozenset())


class Authenticator:
    """Admits principals that have the scope that a route requires."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open_until = 0.0
        self._closed = not service.loopback

    def admit(self, environ: Mapping[str, Any], scope: str) -> Principal:
        """Return the principal of a request, or raise the Refusal that says what is missing.

        An empty scope admits every valid token.
        """
        principal = self._principal(environ)
        if scope and not allows(principal.scopes, scope):
            raise Refusal(
                "insufficient-scope",
                f"This request needs the scope {scope}; the token has {', '.join(sorted(principal.scopes))}.",
                headers={"WWW-Authenticate": f'{REALM}, error="insufficient_scope", scope="{scope}"'},
            )
        return principal

    def _principal(self, environ: Mapping[str, Any]) -> Principal:
        authorization = environ.get("HTTP_AUTHORIZATION")
        if authorization is not None:
            found = self._holder(bearer_token(authorization))
            if found is None:
                raise _invalid(f"The token is unknown, was revoked, or has expired. {CREATE_ONE}")
            return found
        token = token_of(environ)
        if token is not None and is_token(token) and (found := self._holder(token)) is not None:
            return found
        # The cookie of an ended session is ignored: it may belong to another server on this host.
        if self._is_open():
            return ANYONE
        raise Refusal(
            "unauthenticated", f"This request needs a token. {CREATE_ONE}", headers={"WWW-Authenticate": REALM}
        )

    def _holder(self, token: str) -> Principal | None:
        """The principal of a valid token."""
        digest = digest_of(token)
        found = self._service.database.perform(lambda: authenticate(digest))
        return None if found is None else Principal(f"token:{found.id}", found.name, found.scopes)

    def _is_open(self) -> bool:
        """Whether no token is needed: on loopback, until the first is created. Revoking the last does not reopen it."""
        if not self._closed and monotonic() >= self._open_until:
            if self._service.database.perform(list_tokens):
                self._closed = True
            self._open_until = monotonic() + OPEN_SECONDS
        return not self._closed


def bearer_token(authorization: str | None) -> str:
    """The token in an Authorization header. Raise the Refusal that says what is wrong with it."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer":
        raise _invalid("The Authorization header must be: Bearer TOKEN.")
    if not is_token(token):
        raise _invalid("This is not a token: its form or its checksum is wrong.")
    return token


def _invalid(detail: str) -> Refusal:
    return Refusal(
        "unauthenticated",
        detail,
        headers={"WWW-Authenticate": f'{REALM}, error="invalid_token", error_description="{detail}"'},
    )
