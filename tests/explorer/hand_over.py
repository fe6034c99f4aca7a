"""What must hold for runs that were handed to a waiting worker, and for the worker that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.domain.values import Claim
from holdfast.sql.waiting_workers import Given, Listed
from tests.explorer.history import Ended, History

if TYPE_CHECKING:
    from tests.explorer.answers import Observation

Complaints = Iterator[str]

HANDING = ("hand_over", "hand_over_first", "hand_over_key", "hand_over_dedupe")
OF_THE_WAITER = ("wait_again", "adopt", "claim_and_leave", "drain_waiter", "stop_waiter")

# Situations in which the run of the case does not exist before the actors start.
WITHOUT_A_RUN = (
    "fresh", "old_fresh", "waited", "waited_twice", "waited_paused", "waited_other", "waited_expired", "waited_drained",
    "waited_stopped", "waited_expiring",
)  # fmt: skip
# Situations in which no worker may be handed a run, and why.
_NOT_WHERE = {
    "waited_paused": "a run of a paused queue",
    "waited_other": "a run of a task that the worker does not know",
    "waited_expired": "a run to an expired worker",
    "waited_drained": "a run to a worker that drains",
    "waited_stopped": "a run to a worker that stopped",
}
# Programs that affect neither an older run nor a waiting worker.
_LEAVES_ALL = ("wait_again", "adopt", "submit_first", "hand_over_first", "renew", "rescue", "promote")


def handed(seen: Observation) -> dict[str, Ended]:
    """Return the first attempts of runs that a statement created and immediately leased to a waiting worker."""
    first = {run_id: run.attempt(1) for run_id, run in seen.runs.items()}
    return {
        run_id: attempt
        for run_id, attempt in first.items()
        if attempt is not None
        and attempt.worker_id in seen.case.waiters
        and attempt.claimed_at == seen.runs[run_id].created_at
    }


def and_handed(check: Callable[[Observation], Complaints]) -> Callable[[Observation], Complaints]:
    """Return this check of a submit, and the checks of what it handed over."""

    def checks(seen: Observation) -> Complaints:
        yield from check(seen)
        yield from check_handed(seen)

    return checks


def check_handed(seen: Observation) -> Complaints:
    found = handed(seen)
    given = [attempt.worker_id for attempt in found.values()]
    situation = seen.case.situation
    if found and situation in _NOT_WHERE:
        yield f"it handed over {_NOT_WHERE[situation]}"
    most = 2 if "wait_again" in (seen.program, seen.partner) else 1
    for worker in set(given):
        if given.count(worker) > most:
            yield f"a worker that waited for one run was given {given.count(worker)}"
    if seen.program == "hand_over_dedupe" and seen.case.others[seen.who] in found:
        yield "a run was handed over in a transaction of several statements"
    older = seen.runs[seen.case.run_id]
    if situation == "waited_ready" and seen.partner in _LEAVES_ALL:
        for run_id, attempt in found.items():
            if run_id != older.run_id and not _began_by(older, attempt):
                yield f"run {run_id} overtook {older.run_id}, which was there before"
    first = seen.program == "hand_over_first" and seen.answer.received and not seen.answer.doubted
    if first and situation == "waited" and seen.partner in ("adopt", "claim", "renew") and not found:
        yield "nothing was handed over although a worker waited"


def _began_by(run: History, attempt: Ended) -> bool:
    """Whether a run had been claimed when this attempt was."""
    claimed = [event.at for event in run.events if event.type == "CLAIMED"]
    return attempt.claimed_at is not None and bool(claimed) and claimed[0] <= attempt.claimed_at


def check_waits(seen: Observation) -> Complaints:
    listed: Listed = seen.answer.value
    if listed.waits and seen.case.situation == "waited_ready" and seen.partner in _LEAVES_ALL:
        yield "a worker waits although there is a run for it"


def check_left(seen: Observation, claimed: Complaints) -> Complaints:
    """A worker that left the list is handed no more runs."""
    yield from claimed
    left: bool = seen.answer.value[0]
    given = {attempt.worker_id for attempt in handed(seen).values()}
    if left and seen.case.waiters[0] in given and not seen.answer.doubted:
        yield "a worker left the list, and a run was handed to it"


def check_adopted(seen: Observation) -> Complaints:
    """A worker that still waits was handed nothing, and one that does not finds the run that it was handed."""
    given: Given = seen.answer.value
    if given.waits and given.claims:
        yield f"a worker waits and was given {given.claims}"
    taken = seen.case.situation == "waited" and seen.partner in HANDING
    if taken and not given.waits and not given.claims:
        yield "a worker waits no longer, and does not find what it was given"
    for claim in given.claims:
        yield from _recorded(seen, claim)


def _recorded(seen: Observation, claim: Claim) -> Complaints:
    attempt = seen.runs[claim.run_id].attempt(claim.number) if claim.run_id in seen.runs else None
    if attempt is None or attempt.worker_id not in seen.case.waiters:
        yield f"it was given attempt {claim.number}, which is recorded as {attempt}"
