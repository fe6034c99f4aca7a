"""Ray's job server over plain HTTP, with time limits of our own: Ray's own client sets none.

Nothing that is sent here is secret: whoever may list jobs can read entrypoints, metadata and environments.
"""

from __future__ import annotations

import ipaddress
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

TIMEOUT = 10.0
OLDEST = (2, 40)
# Answers are small; only logs can be long, and of those the end is enough.
LOG_TAIL = 20_000
ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})


class RayAway(Exception):
    """The job server did not answer, or not as it should. Nothing is known about what it was asked."""


class RayRefused(Exception):
    """The job server refused the request, and will again."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What Ray says about a job. A hint: how a run ended is decided by its row alone."""

    status: str
    message: str = ""
    exit_code: int | None = None
    job_id: str | None = None
    node_id: str | None = None
    entrypoint: str = ""

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class RayJobs:
    """The job server at one address, such as http://127.0.0.1:8265."""

    def __init__(self, address: str, timeout: float = TIMEOUT) -> None:
        self.address = address.rstrip("/")
        self._timeout = timeout

    def version(self) -> str:
        """The version of Ray. Raise RayRefused if it is too old."""
        version = str(self._ask("GET", "/api/version")["ray_version"])
        require_version(version)
        return version

    def submit(self, submission_id: str, entrypoint: str, resources: Mapping[str, Any]) -> None:
        """Submit a job under an id of our own. If it is there already, with the same entrypoint, this has succeeded."""
        try:
            self._ask("POST", "/api/jobs/", {"entrypoint": entrypoint, "submission_id": submission_id, **resources})
        except (RayAway, RayRefused):
            # An earlier answer may have been lost, and Ray reports a job that exists already as an error.
            there = self.find(submission_id)
            if there is None:
                raise
            if there.entrypoint != entrypoint:
                raise RayRefused(f"job {submission_id} exists with another entrypoint") from None

    def find(self, submission_id: str) -> JobInfo | None:
        """What Ray knows about a job; None if it knows none of this id."""
        try:
            found = self._ask("GET", f"/api/jobs/{quote(submission_id)}")
        except RayRefused as error:
            if error.args[-1] == 404:
                return None
            raise
        return JobInfo(
            found.get("status") or "PENDING",
            found.get("message") or "",
            found.get("driver_exit_code"),
            found.get("job_id"),
            found.get("driver_node_id"),
            found.get("entrypoint") or "",
        )

    def stop(self, submission_id: str) -> None:
        """Ask Ray to stop a job. A job that has not started may ignore it; the fence in its entrypoint does not."""
        self._ask("POST", f"/api/jobs/{quote(submission_id)}/stop")

    def logs(self, submission_id: str) -> str:
        """The end of what the job has printed."""
        return str(self._ask("GET", f"/api/jobs/{quote(submission_id)}/logs").get("logs") or "")[-LOG_TAIL:]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked where the address is read
            self.address + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **_authorization()},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            said = error.read(2000).decode(errors="replace").strip()
            if error.code in (400, 404, 413, 422):
                raise RayRefused(f"Ray answered {error.code}: {said[:500]}", error.code) from error
            raise RayAway(f"Ray answered {error.code}: {said[:500]}") from error
        except (OSError, ValueError) as error:
            raise RayAway(f"the Ray job server at {self.address} does not answer: {error}") from error


def _authorization() -> dict[str, str]:
    """The token of this process, from the variables that Ray itself reads."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return {}
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not token and path:
        token = Path(path).read_text("utf-8").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def job_server(address: str | None) -> str:
    """The address of the job server. Raise ValueError if it is not an address that jobs are sent to."""
    parts = urlsplit(address or "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("set HOLDFAST_RAY_ADDRESS to the address of Ray's job server, such as http://127.0.0.1:8265")
    if not _is_private(parts.hostname) and not _authorization():
        raise ValueError(
            f"{parts.hostname} is a public address, and whoever reaches a Ray without a token can run anything on it; "
            "use a private address, or set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _is_private(host: str) -> bool:
    """Whether the address is one of a private network or of this machine. Names are those of a private network."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return True


def require_version(version: str) -> None:
    """Raise RayRefused if Ray is older than this executor was written for."""
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if len(numbers) == 2 and tuple(numbers) < OLDEST:
        raise RayRefused(f"Ray {version} is too old; Holdfast needs {OLDEST[0]}.{OLDEST[1]} or newer")
