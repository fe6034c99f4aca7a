"""The host names and origins that the API accepts. Cross-site requests from browsers are refused."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from holdfast.http.problems import Refusal
from holdfast.runtime.settings import Settings

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(
    r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_-][a-z0-9._-]*))(?::(?P<port>\d{0,5}))?",
    re.ASCII | re.IGNORECASE,
)


class Hosts:
    """The names that are accepted in the Host header.

    `localhost` and loopback addresses always are. A server that is bound to another address also accepts any numeric
    address, which DNS rebinding cannot forge; names have to be listed in HOLDFAST_HOSTS.
    """

    def __init__(self, settings: Settings) -> None:
        self._loopback = is_loopback(settings.host)
        self._names = {settings.host.lower(), *(name.lower() for name in settings.hosts)}
        self._suffixes = tuple(name for name in self._names if name.startswith("."))
        self._known: set[str] = set()

    def knows(self, header: str) -> bool:
        if header in self._known:
            return True
        parts = _split(header)
        if parts is None or not self._is_accepted(parts[0]):
            return False
        if len(self._known) < 1000:
            self._known.add(header)
        return True

    def _is_accepted(self, name: str) -> bool:
        if name in self._names or name == "localhost" or name.endswith((".localhost", *self._suffixes)):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._loopback


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _split(authority: str) -> tuple[str, int | None] | None:
    """The name and port of a Host header; None if it is anything but a name or an address with an optional port."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    name = (found["address"] or found["name"]).lower().rstrip(".")
    return name, int(found["port"]) if found["port"] else None


def check_origin(method: str, environ: Mapping[str, str]) -> None:
    """Reject unsafe requests from pages on other sites."""
    if method in SAFE:
        return
    if environ.get("HTTP_SEC_FETCH_SITE") == "cross-site":
        raise Refusal("cross-site", "This request was made by a page on a different site.")
    origin = environ.get("HTTP_ORIGIN")
    if origin is not None and _site(origin) != _host_and_port(environ.get("HTTP_HOST", ""), origin):
        raise Refusal("cross-site", "The Origin header of this request does not name this server.")


def _site(origin: str) -> tuple[str, int | None] | None:
    scheme, _, authority = origin.partition("://")
    parts = _split(authority)
    if scheme not in DEFAULT_PORTS or parts is None:
        return None
    return parts[0], parts[1] or DEFAULT_PORTS[scheme]


def _host_and_port(host: str, origin: str) -> tuple[str, int | None] | str:
    """The Host header, with the port that the origin's scheme implies: a proxy that terminates TLS keeps it."""
    parts = _split(host)
    if parts is None:
        return "nowhere"
    return parts[0], parts[1] or DEFAULT_PORTS.get(origin.partition(":")[0])
