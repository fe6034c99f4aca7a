"""The exceptions that Holdfast raises. A message says what happened, why, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from holdfast.domain.times import is_duration


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input, found at a JSON Pointer (RFC 6901)."""

    pointer: str
    detail: str


class HoldfastError(Exception):
    """The base class of all Holdfast errors. An error received over HTTP carries its problem document."""

    problem: Mapping[str, Any] | None = None


class ConfigurationError(HoldfastError):
    """A setting is unknown or cannot be used."""


class DatabaseUnreachable(HoldfastError):
    """Postgres did not respond."""


class DatabaseReadOnly(DatabaseUnreachable):
    """Postgres responds but accepts no writes: it is a standby, or read-only."""


class ClientClosed(HoldfastError):
    """The client is closed and accepts no more calls."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"this {kind} is closed: its `with` block has ended, or close() was called; "
            f"use it before that, or create another {kind}"
        )


class SchemaMismatch(HoldfastError):
    """The database's schema is older or newer than this code supports, or was created by different migrations."""


class PrivilegeMissing(HoldfastError):
    """The database role lacks a privilege. `holdfast db grants` prints the statements that grant what a role needs."""


class UpgradeBlocked(HoldfastError):
    """Other sessions held locks on tables that a migration changes; the migration was rolled back."""


class BadInput(HoldfastError):
    """The input was rejected before anything was written; `problems` says where and why."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


def refused(*problems: Problem) -> BadInput:
    """Return the error for these problems, with a message that lists them."""
    return BadInput("; ".join(f"{problem.pointer}: {problem.detail}" for problem in problems), problems)


class NotCanonical(BadInput):
    """The value is not one of the JSON values that Holdfast can store and hash."""


class BadParameters(BadInput):
    """The parameters do not match the task's signature."""


class UnknownTask(BadInput):
    """No task with this name is registered in this process."""

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        detail = f"no task is registered under the name {name!r}; {hint}registered: {_listed(sorted(known))}"
        advice = "Add the module that registers it to HOLDFAST_TASKS"
        super().__init__(f"{detail}. {advice}.", [Problem("/model", detail)])
        self.name = name


def _listed(names: Sequence[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


class KeyReused(HoldfastError):
    """The idempotency key was already used for a different request, which created run `run_id` or job `job_id`."""

    def __init__(self, key: str, run_id: Any, fields: Sequence[str] = (), *, job_id: Any = None) -> None:
        created = f"run {run_id}" if job_id is None else f"job {job_id}"
        super().__init__(
            f"idempotency key {key!r} was already used for a different request, which created {created}"
            f"{'; fields that differ: ' if fields else ''}{', '.join(fields)}. Use a new key for a new request."
        )
        self.key = key
        self.run_id = run_id
        self.job_id = job_id
        self.fields = tuple(fields)


class RunNotFound(HoldfastError):
    """No run has this id."""


class NotFound(HoldfastError):
    """The requested resource does not exist."""


class NotAllowed(HoldfastError):
    """The caller is not authenticated, or not permitted to do this."""


class ServerUnreachable(HoldfastError):
    """The HTTP API did not respond, or is temporarily unavailable."""


class RunNotFinished(HoldfastError):
    """The run has not ended yet, so it has no result."""


class RunFailed(HoldfastError):
    """The run ended FAILED; `error` holds the class, message and traceback of its last attempt."""

    def __init__(self, message: str, error: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.error = error


class RunCancelled(HoldfastError):
    """The run was cancelled. Raised by `result()`, and inside a task whose run is being cancelled."""


class RunTimedOut(HoldfastError):
    """The attempt ran longer than its task allows."""


class RunEnded(HoldfastError):
    """The run's status does not allow it to be cancelled, postponed or retried."""


class ResultPruned(HoldfastError):
    """The run succeeded, but its result was removed after the retention period."""


class WaitTimeout(HoldfastError):
    """The run or job did not end within the timeout. It continues."""


class LeaseLost(HoldfastError):
    """The attempt no longer holds its lease, so its write was rejected."""


class JobNotFound(HoldfastError):
    """No job has this id."""


class JobEnded(HoldfastError):
    """The job has ended or is being stopped, so it cannot be cancelled or retried, and nothing can be added to it."""


REMEDY = (
    "Nothing was changed. Make the task request the same children on every attempt (`current_run().step` stores a "
    "decision for later attempts), use a different key, or create a new job."
)


class ChildDiffers(HoldfastError):
    """A task, map or join with this name already exists and differs from the one that was requested.

    `differences` lists the differences, each with the stored and the requested value.
    """

    def __init__(self, message: str, differences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.differences = tuple(differences)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that differ, as JSON Pointers, without their values."""
        names = {"task": "/entrypoint", "depends_on": "/depends_on"}
        places = [difference.partition(": ")[0] for difference in self.differences]
        return tuple(names.get(place, place) for place in places)


class Postpone(HoldfastError):
    """Raised by a task to be attempted again after a delay. Postponed attempts do not count towards `max_attempts`."""

    def __init__(self, delay: timedelta | float) -> None:
        if not is_duration(delay):
            raise ValueError(f"Postpone takes a positive timedelta or number of seconds, up to 30 years, not {delay!r}")
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        super().__init__(f"postponed by {self.delay}")


class Fatal(HoldfastError):
    """Raised by a task to fail its run immediately, regardless of its retry policy."""


class ResultNotStorable(HoldfastError):
    """The task returned a value that cannot be stored as JSON; the run fails without a retry."""


class SubscriptionNotFound(HoldfastError):
    """No subscription has this name, or no delivery has this number."""


class SubscriptionExists(HoldfastError):
    """A subscription with this name already exists."""


class SubscriptionNotReady(HoldfastError):
    """The subscription was not added because it would have missed runs ended by a transaction that is still open."""
