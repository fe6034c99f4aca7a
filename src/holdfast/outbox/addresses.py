"""Which hosts a webhook may call.

A subscriber's URL must not give access to the network that Holdfast runs in. So only https URLs with public addresses
are called, every address that the name resolves to is checked, and the connection is made to a checked address: a name
that resolves differently the second time has no effect.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.domain.errors import BadInput, Problem

# Networks whose addresses contain an IPv4 address in their last 32 bits: NAT64, IPv4-compatible, IPv4-translated.
_WRAPPING = [ipaddress.IPv6Network(network) for network in ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")]
_LONGEST = 2048


class Endpoint(NamedTuple):
    """The parts of a webhook's URL."""

    tls: bool
    host: str
    port: int
    path: str


class AddressRefused(Exception):
    """The URL resolves to an address that webhooks may not call."""


def endpoint_of(url: str, *, allow_private: bool) -> Endpoint:
    """Parse a URL. Raises BadInput if the URL itself shows that webhooks may not call it."""
    problem = _problem(url, allow_private)
    if problem:
        raise BadInput(f"the webhook's URL cannot be used: it {problem}", [Problem("/target", problem)])
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(tls, parts.hostname or "", parts.port or (443 if tls else 80), path)


def _problem(url: str, allow_private: bool) -> str | None:
    if len(url) > _LONGEST or not all("!" <= c <= "~" for c in url):
        return f"must be at most {_LONGEST} visible ASCII characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme != "https" and not (allow_private and parts.scheme == "http"):
        return "must begin with https://" + (" or http://" if allow_private else "")
    if not parts.hostname or port == 0:
        return "must name a host"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "must not contain a user name, a password or a fragment"
    if not allow_private and _literal(parts.hostname) is False:
        return "resolves to a private address; HOLDFAST_WEBHOOK_ALLOW_PRIVATE=true allows that"
    return None


def _literal(host: str) -> bool | None:
    """Whether this address is public; None if it is a host name."""
    try:
        return is_public(host)
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Whether an address, or the IPv4 address embedded in it, is on the public internet. Raises ValueError."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and any(ip in network for network in _WRAPPING):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip.is_site_local:
            return False
    return ip.is_global and not ip.is_multicast


def resolve(endpoint: Endpoint, *, allow_private: bool) -> list[str]:
    """Return the addresses of an endpoint. Raises AddressRefused if any of them is not allowed, and OSError."""
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for address in addresses:
        if not allow_private and not is_public(address):
            raise AddressRefused(f"{endpoint.host} resolves to {address}, which is not a public address")
    return addresses
