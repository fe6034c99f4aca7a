"""Ray's job server over plain HTTP, with our own timeouts, because Ray's client has none.

No secrets are sent here: everyone who may list jobs can read entrypoints, metadata and environments.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from holdfast.executors.ray_addresses import RayTooOld, authorization, require_version

TIMEOUT = 10.0
# Responses are small, except for logs, of which the end is enough.
LOG_TAIL = 20_000
ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})


class RayAway(Exception):
    """The job server did not respond, or not correctly. Whether the request had an effect is unknown."""


class RayRefused(Exception):
    """The job server refused the request; a retry would be refused too."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The state of a job in Ray. This is only a hint: the run's row decides how it ended."""

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
        """The version of Ray. Raise RayAway if it is too old: the head may be replaced by a newer one."""
        version = str(self._ask("GET", "/api/version")["ray_version"])
        try:
            require_version(version)
        except RayTooOld as error:
            raise RayAway(str(error)) from error
        return version

    def submit(self, submission_id: str, entrypoint: str, resources: Mapping[str, Any]) -> None:
        """Submit a job with the given id. An existing job with the same id and entrypoint counts as success."""
        try:
            self._ask("POST", "/api/jobs/", {"entrypoint": entrypoint, "submission_id": submission_id, **resources})
        except (RayAway, RayRefused):
            # An earlier response may have been lost, and Ray reports an existing job as an error.
            there = self.find(submission_id)
            if there is None:
                raise
            if there.entrypoint != entrypoint:
                raise RayRefused(f"job {submission_id} already exists with a different entrypoint") from None

    def find(self, submission_id: str) -> JobInfo | None:
        """The state of a job in Ray; None if Ray does not know the id."""
        try:
            found = self._ask("GET", f"/api/jobs/{quote(submission_id)}")
        except RayRefused as error:
            if error.args[-1] == 404:
                return None
            raise
        return _info(found)

    def list(self) -> dict[str, JobInfo]:
        """All jobs that were submitted to this Ray cluster, by submission id."""
        found = self._ask("GET", "/api/jobs/")
        return {one["submission_id"]: _info(one) for one in found if one.get("submission_id")}

    def stop(self, submission_id: str) -> None:
        """Ask Ray to stop a job. A job that has not started may ignore it; the fence in its entrypoint does not."""
        self._ask("POST", f"/api/jobs/{quote(submission_id)}/stop")

    def logs(self, submission_id: str) -> str:
        """The end of the job's output."""
        return self.log(submission_id)[-LOG_TAIL:]

    def log(self, submission_id: str, most: int | None = None) -> str:
        """The job's output, or its first `most` characters."""
        return str(self._ask("GET", f"/api/jobs/{quote(submission_id)}/logs").get("logs") or "")[:most]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked where the address is read
            self.address + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **authorization()},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read(2000).decode(errors="replace").strip()
            if error.code in (400, 404, 413, 422):
                raise RayRefused(f"Ray responded with {error.code}: {said[:500]}", error.code) from error
            raise RayAway(f"Ray responded with {error.code}: {said[:500]}") from error
        except (OSError, ValueError) as error:
            raise RayAway(f"the Ray job server at {self.address} does not respond: {error}") from error


def _info(found: Mapping[str, Any]) -> JobInfo:
    return JobInfo(
        found.get("status") or "PENDING",
        found.get("message") or "",
        found.get("driver_exit_code"),
        found.get("job_id"),
        found.get("driver_node_id"),
        found.get("entrypoint") or "",
    )
