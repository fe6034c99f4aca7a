"""Which Ray clusters may be used: on this machine, in a private network, or protected by a token.

A Ray cluster without a token executes whatever anyone sends to it. So a public address is refused unless a token and
encryption protect it. Whether there is a token must be configured explicitly, because Ray's own default depends on its
version and on what was started on the machine before.
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
    """These executors do not support such an old version of Ray."""


def authorization() -> dict[str, str]:
    """The header with this process's token, from the environment variables that Ray itself reads."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return {}
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not token and path:
        token = Path(path).read_text("utf-8").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def job_server(addresses: Iterable[str]) -> str:
    """The address of the job server. Raise ValueError if there is none, or if it may not be used."""
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname:
            _check(parts.hostname, encrypted=parts.scheme == "https")
            return f"{parts.scheme}://{parts.netloc}"
    raise ValueError("set HOLDFAST_RAY_ADDRESS to the address of Ray's job server, such as http://127.0.0.1:8265")


def gcs(addresses: Iterable[str]) -> str:
    """The address of the GCS, `host:port`. Raise ValueError if there is none, or if it may not be used."""
    for address in addresses:
        host, _, port = address.rpartition(":")
        if "://" not in address and host and port.isdigit():
            _check(host.strip("[]"), encrypted=bool(os.environ.get("RAY_USE_TLS")))
            return address
    raise ValueError("set HOLDFAST_RAY_ADDRESS to the address of Ray's GCS, such as 127.0.0.1:6379")


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
            "address in a private network, or https with RAY_AUTH_MODE=token"
        )


def is_public(host: str) -> bool:
    """Whether the host is, or resolves to, a public address. Unknown names do not."""
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
    """Raise RayTooOld if these executors do not support this version of Ray."""
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if len(numbers) == 2 and tuple(numbers) < OLDEST:
        raise RayTooOld(f"Ray {version} is too old; Holdfast needs {OLDEST[0]}.{OLDEST[1]} or newer")


def refuse_secrets(name: str, environment: Mapping[str, Any]) -> None:
    """Raise ValueError if an environment profile sets a variable that looks like a secret.

    Everyone who may list the jobs of a Ray cluster can read their environments.
    """
    for variable, value in dict(environment.get("env_vars") or {}).items():
        if _SECRET.search(variable) or ("://" in str(value) and "@" in str(value)):
            raise ValueError(
                f"environment {name!r} sets {variable}, which looks like a secret; anyone who can list jobs could "
                "read it. Set it in the environment of ray start instead"
            )
