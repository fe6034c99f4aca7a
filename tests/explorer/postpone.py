"""The responses to requests that postpone a run, compared with what was stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.domain.records import EventRecord
from holdfast.domain.values import RunRecord
from tests.explorer.programs import POSTPONED

if TYPE_CHECKING:
    from tests.explorer.answers import Observation

Complaints = Iterator[str]


def check_postponed(seen: Observation) -> Complaints:
    """A postponed run has an event for each request that succeeded, and did not start before its time."""
    events = [event for event in seen.run.events if event.type == "POSTPONED" and seen.mine(event.reason)]
    if seen.pruned and not seen.run.exists:
        return
    if seen.answer.error is None and not events:
        yield "its answer was that the run is postponed, but no event says so"
    if seen.answer.error is not None and events and not seen.answer.doubted:
        yield "its answer was that the run cannot be postponed, but an event says that it was"
    record: RunRecord | None = seen.answer.value
    if record is not None and record.status != "PENDING":
        yield f"its answer was that the run is postponed and {record.status}"
    yield from _too_early(seen, events)


def _too_early(seen: Observation, events: list[EventRecord]) -> Complaints:
    """Unless it was postponed again or reopened in the meantime, it was claimed after its time or not at all."""
    if seen.partner in ("postpone", "retry") or not events or seen.answer.doubted:
        return
    due = events[-1].at + POSTPONED[seen.who]
    claimed = [event.at for event in seen.run.events if event.type == "CLAIMED" and event.seq > events[-1].seq]
    if claimed and claimed[0] < due:
        yield f"it was postponed until {due}, and claimed at {claimed[0]}"
