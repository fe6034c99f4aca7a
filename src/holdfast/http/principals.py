"""Principals: who makes a request, identified by a token in the Authorization header or in a session cookie.

On this machine, until the first token is created, everyone who can reach the server may do everything. A token is
looked up for every request, so one that was revoked is refused at once.

The cookie of a browser session holds a token, so that the browser acts as its principal: it has the same scopes, and
stops working as soon as the token is revoked or expires. The server stores nothing about sessions. Scripts cannot read
the cookie (HttpOnly), and a browser does not send it with requests that pages on other sites make (SameSite=Lax), apart
from following a link. Requests that change something must also prove that they come from a page of this server, because
other ports and subdomains of a host count as the same site.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple

from holdfast.domain.tokens import SCOPES, allows, digest_of, is_token
from holdfast.http.hosts import SAFE
from holdfast.http.problems import Refusal
from holdfast.http.service import Service
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


NAME = "holdfast_session"
# A browser accepts a cookie with this prefix only over HTTPS and from the host itself, so no subdomain can set one.
SECURE_NAME = f"__Host-{NAME}"


def token_of(environ: Mapping[str, Any]) -> str | None:
    """The token in the session cookie of a request, if it has one. Raise a Refusal if the request may be forged."""
    header = environ.get("HTTP_COOKIE")
    if header is None or NAME not in header:
        return None
    cookies = _cookies(header)
    found = cookies.get(SECURE_NAME)
    if found is None and not _is_https(environ):
        found = cookies.get(NAME)
    if found is None:
        return None
    if environ["REQUEST_METHOD"] not in SAFE and not _is_same_origin(environ):
        raise Refusal(
            "cross-site",
            "A request with a session cookie that changes something needs an Origin header, which browsers send; "
            "programs should send the token in the Authorization header instead.",
        )
    return found


def _cookies(header: str) -> dict[str, str]:
    """The cookies of a request by name.

    A parser that rejects the header because of one of them would end sessions: other servers on this host set cookies
    too, and not all of them are valid. Only ASCII blanks are removed: a browser accepts a cookie from a subdomain whose
    name begins with another blank, such as a no-break space, and then the name of a secure cookie.
    """
    pairs = (pair.partition("=") for pair in header.split(";"))
    return {name.strip(" \t"): value.strip(" \t") for name, _, value in pairs}


def cookie(environ: Mapping[str, Any], token: str | None) -> str:
    """The Set-Cookie header that begins a session (until the browser is closed) or, without a token, ends it."""
    name, suffix = (SECURE_NAME, "; Secure") if _is_https(environ) else (NAME, "")
    return f"{name}={token or ''}; Path=/; HttpOnly; SameSite=Lax{suffix}" + ("" if token else "; Max-Age=0")


def _is_https(environ: Mapping[str, Any]) -> bool:
    """Whether the browser uses HTTPS, which may end at a proxy in front of this server."""
    return (
        environ.get("wsgi.url_scheme") == "https"
        or environ.get("HTTP_X_FORWARDED_PROTO") == "https"
        or environ.get("HTTP_ORIGIN", "").startswith("https://")
    )


def _is_same_origin(environ: Mapping[str, Any]) -> bool:
    """Whether a page of this server makes the request. Other origins have already been refused."""
    return environ.get("HTTP_SEC_FETCH_SITE", "same-origin") == "same-origin" and "HTTP_ORIGIN" in environ
