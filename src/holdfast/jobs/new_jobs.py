"""Checks of the arguments that describe a new job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.domain.errors import BadInput, Problem
from holdfast.domain.ids import new_id
from holdfast.domain.jobs import NewJob
from holdfast.domain.states import Status
from holdfast.jobs import specs
from holdfast.verbs.caller import Caller

# The source system's names for our statuses.
STATUSES = {status.value.lower(): status.value for status in Status} | {"completed": "SUCCEEDED"}


def new_job(caller: Caller, name: Any, description: Any, timeout: Any, id_: str | None = None) -> NewJob:
    """Check the name, the description and the timeout of a job."""
    problems: list[Problem] = []
    seconds = specs.seconds_of(timeout, "/timeout", problems)
    if seconds is None:
        seconds = caller.settings.job_timeout_seconds
    for field, text, most in (("name", name, 255), ("description", description, 10_000)):
        if (text is not None or field == "name") and (
            not isinstance(text, str) or not 1 <= len(text) <= most or "\0" in text
        ):
            problems.append(Problem(f"/{field}", f"must be 1 to {most} characters"))
    if problems:
        raise BadInput("; ".join(f"{p.pointer}: {p.detail}" for p in problems), problems)
    return NewJob(id_ or new_id(), name, description, timedelta(seconds=seconds) if seconds else None, caller.name)


def status_of(text: str | None) -> str | None:
    """A status, in upper or lower case, or by its name in the source system."""
    if text is None:
        return None
    found = STATUSES.get(str(text).lower())
    if found is None:
        raise BadInput(
            f"{text!r} is not a status; use {', '.join(sorted(STATUSES))}", [Problem("/status", "unknown status")]
        )
    return found
