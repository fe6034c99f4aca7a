"""Where a Ray may be: on this machine or in a private network, or behind a token.

A Ray without a token executes what anyone sends to it. So an address of a public network is refused unless a token and
encryption protect it, and whether there is a token has to be said, because Ray's own default differs by version and by
what was started on the machine before.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

OLDEST = (2, 40)
MODES = ("token", "disabled")
LOOPBACK = ("127.", "localhost:", "[::1]")
_SECRET = re.compile(r"password|passwd|secret|token|credential|api_?key|private_?key|database_url", re.IGNORECASE)


class RayTooOld(Exception):
    """The version of Ray is older than these executors were written for."""


def authorization() -> dict[str, str]:
    """The header with the token of this process, from the variables that Ray itself reads."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return {}
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not token and path:
        token = Path(path).read_text("utf-8").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def job_server(addresses: Iterable[str]) -> str:
    """The address of the job server. Raise ValueError if there is none that jobs may be sent to."""
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname:
            _check(parts.hostname, encrypted=parts.scheme == "https")
            return f"{parts.scheme}://{parts.netloc}"
    raise ValueError("set HOLDFAST_RAY_ADDRESS to the address of Ray's job server, such as http://127.0.0.1:8265")


def gcs(addresses: Iterable[str]) -> str:
    """The address of the GCS, `host:port`. Raise ValueError if there is none that may be connected to."""
    for address in addresses:
        host, _, port = address.rpartition(":")
        if "://" not in address and host and port.isdigit():
            _check(host.strip("[]"), encrypted=bool(os.environ.get("RAY_USE_TLS")))
            return address
    raise ValueError("set HOLDFAST_RAY_ADDRESS to the address of its GCS, such as 127.0.0.1:6379")


def _check(host: str, *, encrypted: bool) -> None:
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode not in MODES:
        raise ValueError(
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, the same as for ray start; or "
            "RAY_AUTH_MODE=disabled for a cluster without tokens in a private network"
        )
    if mode == "token" and not authorization():
        raise ValueError("RAY_AUTH_MODE=token needs RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH")
    if is_public(host) and not (mode == "token" and encrypted):
        raise ValueError(
            f"{host} is a public address, and a Ray cluster without a token executes what anyone sends to it; use an "
            "address of a private network, or https with RAY_AUTH_MODE=token"
        )


def is_public(host: str) -> bool:
    """Whether the host is, or has, an address that can be reached from the internet. Unknown names have none."""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return any(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_global for one in found)


def require_version(version: str) -> None:
    """Raise RayTooOld if this version of Ray is older than these executors were written for."""
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if len(numbers) == 2 and tuple(numbers) < OLDEST:
        raise RayTooOld(f"Ray {version} is too old; Holdfast needs {OLDEST[0]}.{OLDEST[1]} or newer")


def refuse_secrets(name: str, environment: Mapping[str, Any]) -> None:
    """Raise ValueError if an environment profile sets a variable that looks like a secret.

    Everyone who may list the jobs of a Ray can read their environments.
    """
    for variable, value in dict(environment.get("env_vars") or {}).items():
        if _SECRET.search(variable) or ("://" in str(value) and "@" in str(value)):
            raise ValueError(
                f"environment {name!r} sets {variable}, which looks like a secret; everyone who may list jobs could "
                "read it. Set it in the environment of ray start instead"
            )
