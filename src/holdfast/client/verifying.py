"""Verifying a run: whether everything that is stored about it is consistent. And comparing two runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.domain.canonical import canonicalize, differences
from holdfast.domain.errors import HoldfastError, ResultPruned
from holdfast.domain.states import MOVES, Status
from holdfast.domain.tasks import registry
from holdfast.ops.children import value_at

if TYPE_CHECKING:
    from holdfast.domain.records import AttemptRecord, EventRecord
    from holdfast.verbs.facades import Calls
    from holdfast.verbs.handles import Run


class Check(NamedTuple):
    """The result of one check."""

    name: str
    holds: bool
    detail: str


def verify(client: Calls, run_id: str) -> list[Check]:
    """Check everything that is stored about a run."""
    run = client.get(run_id)
    events, attempts = client.events(run), client.attempts(run)
    checks = [
        payload_hash(run),
        folded(run, events),
        in_order(events),
        timed(run.created_at, attempts),
        contiguous(run, attempts),
        ended_once(run, attempts),
    ]
    if run.status is Status.SUCCEEDED:
        checks.append(_result(client, run))
    return checks


def payload_hash(run: Run) -> Check:
    """Whether the parameters have the hash that was stored with them."""
    task = registry.find(run.model)
    ignored = task.ignore_in_hash if task else ()
    found = {canonicalize(run.parameters)[1], canonicalize(run.parameters, ignored)[1]}
    if run.payload_hash in found:
        return Check("payload hash", True, run.payload_hash)
    detail = f"the stored hash is {run.payload_hash}, but the parameters have the hash {' or '.join(sorted(found))}"
    if task is None:
        detail += f"; task {run.model} is not registered here, so its `ignore_in_hash` is not known"
    return Check("payload hash", False, detail)


def folded(run: Run, events: Sequence[EventRecord]) -> Check:
    """Whether each event is a legal transition from the status before it, and the last leads to the run's status."""
    at: str | None = None
    for event in events:
        if event.to_status is None:
            continue
        if event.from_status != at:
            return Check(
                "events", False, f"event {event.seq} is a transition from {event.from_status}, but the run was {at}"
            )
        if at is not None and (Status(at), Status(event.to_status)) not in MOVES:
            return Check("events", False, f"event {event.seq} is not a legal transition: {at} to {event.to_status}")
        at = event.to_status
    if at != run.status:
        return Check("events", False, f"the events lead to {at}, but the run is {run.status}")
    return Check("events", True, f"{len(events)} events lead to {at}")


def in_order(events: Sequence[EventRecord]) -> Check:
    """Whether events are numbered without gaps and their times never decrease.

    These are the times that users see, which follow the order; `timed` compares the stored times.
    """
    if [event.seq for event in events] != list(range(1, len(events) + 1)):
        return Check("order", False, "there is a gap in the event numbers")
    backward = [b.seq for a, b in pairwise(events) if b.at < a.at]
    if backward:
        return Check("order", False, f"event {backward[0]} is earlier than the one before it")
    return Check("order", True, "events are in chronological order")


def timed(created_at: datetime, attempts: Sequence[AttemptRecord]) -> Check:
    """Whether each attempt was claimed after the run was submitted, started after that, and ended last."""
    for attempt in attempts:
        times = [created_at, attempt.claimed_at, attempt.started_at, attempt.finished_at]
        known = [at for at in times if at is not None]
        if known != sorted(known):
            listed = ", ".join(at.isoformat() for at in known)
            return Check("times", False, f"the times of attempt {attempt.number} are out of order: {listed}")
    return Check("times", True, "each attempt was claimed, started and ended in that order")


def contiguous(run: Run, attempts: Sequence[AttemptRecord]) -> Check:
    """Whether attempts are numbered 1, 2, … up to the run's count."""
    numbers = [attempt.number for attempt in attempts]
    if numbers != list(range(1, run.attempt_count + 1)):
        return Check(
            "attempts", False, f"the run counts {run.attempt_count} attempts, but the stored ones are {numbers}"
        )
    return Check("attempts", True, f"{len(numbers)}, numbered without gaps")


def ended_once(run: Run, attempts: Sequence[AttemptRecord]) -> Check:
    """Whether at most one attempt succeeded, as the last one and only if the run did."""
    succeeded = [attempt.number for attempt in attempts if attempt.status == "SUCCEEDED"]
    expected = [run.attempt_count] if run.status is Status.SUCCEEDED else []
    if succeeded != expected:
        return Check("success", False, f"the run is {run.status}, but the attempts that succeeded are {succeeded}")
    overlapping = [b.number for a, b in pairwise(attempts) if a.finished_at is None or b.claimed_at < a.finished_at]
    if overlapping:
        return Check("success", False, f"attempt {overlapping[0]} began before the one before it had ended")
    return Check("success", True, "no two attempts overlap, and at most one succeeded")


def _result(client: Calls, run: Run) -> Check:
    """Whether the result can be read; reading one from the result store compares its SHA-256."""
    try:
        client.result(run)
    except ResultPruned as error:
        return Check("result", True, str(error))
    except HoldfastError as error:
        return Check("result", False, str(error))
    where = f"{run.result_ref}, its SHA-256 matches" if run.result_ref else "stored with the run"
    return Check("result", True, where)


AT_MOST = 1000


def compare(client: Calls, first: str, second: str) -> list[dict[str, Any]]:
    """Where two runs differ: the JSON Pointer of each difference, and the value of each run there, if it has one."""
    a, b = _described(client, first), _described(client, second)
    if "result" not in a or "result" not in b:
        a.pop("result", None)
        b.pop("result", None)
    return [{"pointer": one, **_at(a, one, "a"), **_at(b, one, "b")} for one in differences(a, b, AT_MOST)]


def _described(client: Calls, run_id: str) -> dict[str, Any]:
    run: Run = client.get(run_id)
    described: dict[str, Any] = {
        "model": run.model,
        "status": str(run.status),
        "parameters": run.parameters,
        "queue": run.queue,
        "priority": run.priority,
        "max_attempts": run.max_attempts,
        "concurrency_key": run.concurrency_key,
        "tags": list(run.tags),
        "last_error": run.last_error,
    }
    if run.status is Status.SUCCEEDED:
        described["result"] = client.result(run)
    return described


def _at(value: Any, pointer: str, name: str) -> dict[str, Any]:
    """The value at a JSON Pointer under this name; nothing if there is none."""
    try:
        return {name: value_at(value, pointer)}
    except LookupError:
        return {}
