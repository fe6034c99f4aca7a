"""Browser sessions: a cookie that holds a token, so that a browser acts as the token's principal.

The cookie is looked up like a token in the Authorization header: it has the same scopes, and stops working as soon as
the token is revoked or expires. The server stores nothing about sessions.

Scripts cannot read the cookie (HttpOnly), and a browser does not send it with requests that pages on other sites make
(SameSite=Lax), apart from following a link. Requests that change something must also prove that they come from a page
of this server, because other ports and subdomains of a host count as the same site.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.http.hosts import SAFE
from holdfast.http.problems import Refusal

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
