"""Which hosts a webhook may call.

A subscriber's URL must not become a way into the network that Holdfast stands in. So only https to public addresses is
called, every address that the name resolves to is looked at, and the connection is made to an address that was looked
at: a name that answers differently the second time gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.domain.errors import BadInput, Problem

# Networks whose addresses hold an IPv4 address in their last 32 bits: NAT64, IPv4-compatible, IPv4-translated.
_WRAPPING = [ipaddress.IPv6Network(network) for network in ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")]
_LONGEST = 2048


class Endpoint(NamedTuple):
    """A webhook's URL, taken apart."""

    tls: bool
    host: str
    port: int
    path: str


class AddressRefused(Exception):
    """The URL leads to where webhooks may not go."""


def endpoint_of(url: str, *, allow_private: bool) -> Endpoint:
    """Take a URL apart. Raises BadInput if webhooks cannot go there, as far as the URL itself tells."""
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
        return "must have neither user, password nor fragment"
    if not allow_private and _literal(parts.hostname) is False:
        return "leads to a private address; HOLDFAST_WEBHOOK_ALLOW_PRIVATE=true allows that"
    return None


def _literal(host: str) -> bool | None:
    """Whether this address is public; None if it is a name."""
    try:
        return is_public(host)
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet, whatever it is wrapped in. Raises ValueError."""
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
    """The addresses that may be connected to. Raises AddressRefused if any of them may not, and OSError."""
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for address in addresses:
        if not allow_private and not is_public(address):
            raise AddressRefused(f"{endpoint.host} leads to {address}, which is not a public address")
    return addresses
