"""How the clients use httpx2: opening it, and recognizing connection errors."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from holdfast.domain.errors import ConfigurationError, ServerUnreachable

try:
    import httpx2
except ImportError as missing:
    raise ConfigurationError("the HTTP client needs the extra `client`: pip install 'holdfast[client]'") from missing

BROKEN = (httpx2.TransportError, httpx2.StreamError)
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def headers_for(token: str | None) -> dict[str, str]:
    headers = {"User-Agent": f"holdfast/{version('holdfast')}", "Content-Type": "application/json"}
    return headers if token is None else {**headers, "Authorization": f"Bearer {_token(token)}"}


def open_blocking(url: str, headers: Mapping[str, str], timeout: float) -> httpx2.Client:
    return httpx2.Client(base_url=_checked(url), headers=dict(headers), timeout=_timeout(timeout))


def open_async(url: str, headers: Mapping[str, str], timeout: float) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=_checked(url), headers=dict(headers), timeout=_timeout(timeout))


def unreachable(url: str, error: Exception) -> ServerUnreachable:
    cause = str(error) or type(error).__name__
    return ServerUnreachable(
        f"the API at {url} does not respond: {cause}. Check HOLDFAST_URL and that the server is running."
    )


def _timeout(seconds: float) -> httpx2.Timeout:
    return httpx2.Timeout(seconds, connect=min(seconds, 10.0))


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
