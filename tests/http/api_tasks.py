"""Tasks for the tests of the API."""

from __future__ import annotations

from typing import Any

from holdfast import Retry, task


@task("mirror", retry=Retry(max_attempts=2, delays=(0,)))
def mirror(**parameters: Any) -> dict[str, Any]:
    """Return the parameters."""
    return parameters


@task("typed", ignore_in_hash=("requested_at", "client.name"))
def typed(scenario: str, months: int = 12) -> dict[str, Any]:
    """Has typed parameters."""
    return {"scenario": scenario, "months": months}


@task("each", dedupe="off")
def each(number: int = 0) -> int:
    """Create a run for every request."""
    return number


@task("once", dedupe=3600.0)
def once(number: int = 0) -> int:
    """Has its own dedupe window of an hour."""
    return number
