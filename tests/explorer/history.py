"""The stored state after a batch of schedules, read once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.domain.records import EventRecord
from holdfast.sql import events
from holdfast.sql.statement import plain_array, text_array
from tests.explorer.wire import Session


@dataclass(slots=True)
class Ended:
    """One row of `attempts`."""

    number: int
    status: str
    outcome: str | None
    worker_id: str | None
    claimed_at: datetime | None
    finished_at: datetime
    reason: str | None
    result: str | None
    result_ref: str | None
    reopened_at: datetime | None
    reopened_by: str | None
    expires_at: datetime | None  # of the worker: the latest value
    details: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """A step or log line that an attempt wrote: its name or text, and when it was written."""

    kind: str
    what: str
    attempt: int
    at: datetime


@dataclass(slots=True)
class History:
    """Everything known about one run at the end."""

    run_id: str
    exists: bool = False
    status: str | None = None
    created_at: datetime | None = None
    run_after: datetime | None = None
    policy: str | None = None
    max_attempts: int = 3
    places: list[str] = field(default_factory=list)
    attempts: list[Ended] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    notes: list[Noted] = field(default_factory=list)

    def attempt(self, number: int) -> Ended | None:
        return next((attempt for attempt in self.attempts if attempt.number == number), None)

    @property
    def ending(self) -> Ended | None:
        return next((a for a in self.attempts if a.outcome is not None and a.reopened_at is None), None)

    @property
    def reopened(self) -> bool:
        return any(attempt.reopened_at is not None for attempt in self.attempts)


_RUNS = """
    select run_status.id::text, run_status.status, run_status.created_at, run_status.run_after, runs.policy::text,
           run_status.max_attempts
    from holdfast.run_status join holdfast.runs on runs.id = run_status.id
    where run_status.id = any(%(ids)s::uuid[])
"""
_PLACES = """
    select run_id::text, 'ready' from holdfast.ready where run_id = any(%(ids)s::uuid[])
    union all select run_id::text, 'waiting' from holdfast.waiting where run_id = any(%(ids)s::uuid[])
    union all select run_id::text, 'leases' from holdfast.leases where run_id = any(%(ids)s::uuid[])
"""
_ATTEMPTS = """
    select attempts.run_id::text, attempts.number, attempts.status, attempts.outcome, attempts.worker_id::text,
           attempts.claimed_at, attempts.finished_at, attempts.reason, attempts.result::text, attempts.result_ref,
           attempts.reopened_at, attempts.reopened_by, workers.expires_at, attempts.details
    from holdfast.attempts left join holdfast.workers on workers.id = attempts.worker_id
    where attempts.run_id = any(%(ids)s::uuid[])
    order by attempts.run_id, attempts.finished_at, attempts.number
"""
_KEYS = "select run_id::text, key from holdfast.idempotency_keys where run_id = any(%(ids)s::uuid[])"
_NOTES = """
    select run_id::text, 'step', name, attempt, recorded_at from holdfast.steps where run_id = any(%(ids)s::uuid[])
    union all select run_id::text, 'line', message, attempt, at from holdfast.logs where run_id = any(%(ids)s::uuid[])
"""
_TALLIES = """
    select task, kind, sum(amount)::bigint from (
        select task, kind, amount from holdfast.tallies where task = any(%(tasks)s::text[])
        union all
        select task, kind, amount from holdfast.summary where task = any(%(tasks)s::text[])
        union all
        select task, 'created', 1 from holdfast.ready where task = any(%(tasks)s::text[]) and not counted) as every
    group by task, kind
"""


def read(session: Session, ids: Sequence[str]) -> dict[str, History]:
    """Return the histories of these runs, including those that were never created."""
    parameters: dict[str, Any] = {"ids": plain_array(ids)}
    found = {run_id: History(run_id) for run_id in ids}
    for run_id, *row in session.execute(_RUNS, parameters):
        history = found[run_id]
        history.exists = True
        history.status, history.created_at, history.run_after, history.policy, history.max_attempts = row
    for run_id, place in session.execute(_PLACES, parameters):
        found[run_id].places.append(place)
    for run_id, *row in session.execute(_ATTEMPTS, parameters):
        found[run_id].attempts.append(Ended(*row))
    for run_id, key in session.execute(_KEYS, parameters):
        found[run_id].keys.append(key)
    for run_id, *row in session.execute(_NOTES, parameters):
        found[run_id].notes.append(Noted(*row))
    for history in found.values():
        if history.exists:
            history.events = session.run(iter(events.of_run(history.run_id)))
    return found


def counted(session: Session, tasks: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the counters of these tasks."""
    found: dict[str, dict[str, int]] = {task: {} for task in tasks}
    for task, kind, amount in session.execute(_TALLIES, {"tasks": text_array(found)}):
        found[task][kind] = amount
    return found
