"""How the clients use httpx2: opening it, recognizing connection errors, and when to retry a request.

A request is retried if there was no response or a temporary refusal, until the time for retries has passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from random import uniform
from time import monotonic
from typing import Any

from holdfast.domain.errors import ConfigurationError, ServerUnreachable
from holdfast.outbox.responses import retry_after_of
from holdfast.verbs.requests import Request

try:
    import httpx2
except ImportError as missing:
    raise ConfigurationError("the HTTP client needs the extra `client`: pip install 'holdfast[client]'") from missing

BROKEN = (httpx2.TransportError, httpx2.StreamError)
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def open_blocking(url: str, token: str | None, timeout: float) -> httpx2.Client:
    return httpx2.Client(**_options(url, token, timeout))


def open_async(url: str, token: str | None, timeout: float) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(**_options(url, token, timeout))


def _options(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    headers = {"User-Agent": f"holdfast/{version('holdfast')}", "Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {_token(token)}"
    limits = httpx2.Timeout(timeout, connect=min(timeout, 10.0))
    return {"base_url": _checked(url), "headers": headers, "timeout": limits}


def arguments(request: Request) -> dict[str, Any]:
    """Return the arguments by which httpx2 sends a request."""
    parts = {"params": dict(request.query), "headers": dict(request.headers), "content": request.body}
    return {"method": request.method, "url": request.path, **parts}


def unreachable(url: str, error: Exception) -> ServerUnreachable:
    cause = str(error) or type(error).__name__
    return ServerUnreachable(
        f"the API at {url} does not respond: {cause}. Check HOLDFAST_URL and that the server is running."
    )


def _checked(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"{url!r} is not the URL of an API; it must start with http:// or https://")
    return url


def _token(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(
            "the token contains a space, a line break or another character that tokens never contain; "
            "check HOLDFAST_TOKEN, or the token that was passed"
        )
    return token


TEMPORARY_STATUSES = frozenset({429, 502, 503, 504})
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
DEFAULT_PAUSE = 1.0


class Retries:
    """The retries of one request, with growing, jittered pauses, or the pauses that the server requests."""

    def __init__(self, seconds: float) -> None:
        self._ends = monotonic() + seconds
        self._pause = FIRST_PAUSE

    def pause(self, headers: Mapping[str, str] | None = None) -> float | None:
        """Seconds to wait before the next try; None if the time for retries will have passed by then."""
        grown = uniform(0.5, 1.0) * self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        asked = retry_after(headers)
        pause = grown if asked is None else asked + uniform(0.0, 0.2) * max(asked, grown)
        return pause if monotonic() + pause < self._ends else None


def pause_before_next_wait(asked: float | None, until: float) -> float:
    """Seconds to pause after a long poll that the server answered before `until` because it was at capacity."""
    return max(0.0, min(DEFAULT_PAUSE if asked is None else asked, until - monotonic()))


def retry_after(headers: Mapping[str, str] | None) -> float | None:
    """The seconds until the time in Retry-After, which is a number of seconds or a date."""
    return retry_after_of(headers.get("retry-after") if headers else None, datetime.now(UTC))
