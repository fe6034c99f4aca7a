"""What callers were told, held against what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from holdfast.domain.errors import KeyReused, LeaseLost, RunEnded, RunNotFound
from holdfast.domain.values import RELEASED, Acknowledgement, Claim, Renewal, RunRecord, Submitted
from tests.explorer.actor import Answer
from tests.explorer.history import History
from tests.explorer.programs import WRITTEN, Case

Complaints = Iterator[str]

# They skip what others hold; only the end of a whole month makes them wait.
NEVER_WAIT = ("claim", "promote", "name_tasks")
FINISHERS = ("succeed", "fail", "fail_for_good", "hand_back", "turn")
ENDS_OR_RELEASES = (*FINISHERS, "release")
_LEAVES_THE_LEASE = ("submit", "claim", "claim_by_id", "renew", "step", "log", "retry", "rescue", "promote")


@dataclass(slots=True)
class Told:
    """One caller, the other one's program, and how the runs of their case ended."""

    case: Case
    who: int
    program: str
    partner: str
    answer: Answer
    runs: dict[str, History]
    waited: bool = False
    deadlocked: bool = False

    @property
    def run(self) -> History:
        return self.runs[self.case.run_id]

    @property
    def pruned(self) -> bool:
        """Whether the run may have been dropped together with its month."""
        return self.case.month is not None and "prune" in (self.program, self.partner)

    @property
    def other_finisher(self) -> bool:
        return self.partner in ENDS_OR_RELEASES


def check(told: Told) -> Complaints:
    """Everything wrong with one caller's answer."""
    if told.waited and told.program in NEVER_WAIT and told.partner != "prune" and not told.answer.doubted:
        yield "it waited for a lock, and everybody behind it would have as well"
    if told.deadlocked:
        yield "I37: it was the victim of a deadlock; it is asked again, but the other one has waited a second for that"
    if told.program == "submit_batch":
        yield from _all_or_none(told)
    if not told.answer.heard:
        return
    error = told.answer.error
    if isinstance(error, psycopg.Error):
        yield f"the database refused it: {str(error).splitlines()[0]}"
    elif error is not None and not _expected(told, error):
        yield f"it was told {type(error).__name__}: {error}"
    else:
        yield from _CHECKS[told.program](told)


def _expected(told: Told, error: Exception) -> bool:
    missing = told.pruned or told.case.situation in ("fresh", "old_fresh")
    match told.program:
        case "cancel" | "retry":
            return isinstance(error, RunEnded) or (isinstance(error, RunNotFound) and missing)
        case "renew":
            return isinstance(error, LeaseLost)
        case "submit_key" | "submit_other" | "submit_in":
            reused = isinstance(error, KeyReused) and "submit_other" in (told.program, told.partner)
            return reused or (isinstance(error, RunNotFound) and told.pruned)
        case "submit" | "submit_first" | "submit_batch" | "submit_dedupe":
            return isinstance(error, RunNotFound) and told.pruned
        case _:
            return False


def _submitted(told: Told) -> Complaints:
    """I1: what was acknowledged is there. I2: one key, one run."""
    answer = told.answer.value
    if isinstance(told.answer.error, KeyReused):
        if told.answer.error.fields != ("/parameters/n",):
            yield f"KeyReused names {told.answer.error.fields}"
        return
    if not isinstance(answer, Submitted):
        return
    run_id = answer.run.id
    if run_id not in told.runs:
        yield f"it was told of a run of somebody else: {run_id}"
    elif not told.runs[run_id].exists and not told.pruned:
        yield f"it was told of run {run_id}, which is not there"
    if answer.run.parameters != {"n": 2 if told.program == "submit_other" else 1}:
        yield f"I3: it was told of a run with {answer.run.parameters}"
    asked = {"submit": told.case.run_id, "submit_first": told.case.others[told.who]}.get(told.program, run_id)
    if run_id != asked:
        yield f"it asked for run {asked} and was told of {run_id}"
    if told.program == "submit_first" and not answer.created and not told.answer.doubted:
        yield f"it made {run_id}, and was told that somebody else had"
    if answer.created and told.program != "submit" and run_id != told.case.others[told.who]:
        yield f"it was told that it made {run_id}"


def _all_or_none(told: Told) -> Complaints:
    """Also if its caller has died over it."""
    mine = told.case.batches[told.who]
    made = [run_id for run_id in mine if told.runs[run_id].exists]
    if made and len(made) < len(mine) and not told.pruned:
        yield f"of {len(mine)} runs that were asked for together {len(made)} are there"
    if not made and told.answer.value and not told.pruned:
        yield "I1: it was told of runs that are not there"


def _batched(told: Told) -> Complaints:
    asked, answers = list(told.case.batches[told.who]), told.answer.value
    if answers is not None and [answer.run.id for answer in answers] != asked:
        yield f"it asked for {asked} and was told of {answers}"
    if answers is not None and not told.answer.doubted and not all(answer.created for answer in answers):
        yield f"it made {asked}, and was told that somebody else had made some of them"


def _keyed(told: Told) -> Complaints:
    yield from _submitted(told)
    made = [run_id for run_id in told.case.others if told.runs[run_id].exists]
    if told.partner != "submit_dedupe" and len(made) > 1:
        yield f"one key made {len(made)} runs"
    known = told.case.situation != "fresh" and told.case.month is None
    answer = told.answer.value
    if isinstance(answer, Submitted) and known and answer.run.id != told.case.run_id:
        yield f"the key belongs to {told.case.run_id}, it was told of {answer.run.id}"
    if isinstance(answer, Submitted) and answer.created and not told.pruned:
        keys = told.runs[answer.run.id].keys
        if keys != [told.case.new.key]:
            yield f"I5: its run is there with keys {keys}"


def _deduplicated(told: Told) -> Complaints:
    yield from _submitted(told)
    answer = told.answer.value
    if not isinstance(answer, Submitted) or not answer.created:
        return
    mine = told.runs[answer.run.id]
    rivals = [told.case.run_id] if told.case.situation not in ("fresh", "old_fresh") else []
    if told.partner == "submit_dedupe":
        rivals.append(told.case.others[1 - told.who])
    for rival in rivals:
        if rival != mine.run_id and _active_at(told.runs[rival], mine.created_at):
            yield f"it made {mine.run_id} while {rival} was active with the same payload"


def _active_at(run: History, at: datetime | None) -> bool:
    """Whether the run was open to be found. One that a person reopens meanwhile may have been so too late."""
    active = False
    for event in run.events:
        if at is None or event.at > at:
            break
        if event.type == "REOPENED":
            return False
        if event.to_status is not None:
            active = event.to_status in ("PENDING", "RUNNING")
        elif event.type == "CANCEL_REQUESTED":
            active = False
    return active


def _claimed(told: Told, worker: str | None = None, claims: list[Claim] | None = None) -> Complaints:
    """I12, and what was handed out is recorded under the name of whom it was handed to."""
    claims = told.answer.value if claims is None else claims
    worker = worker or told.case.claimers[told.who]
    if len(claims) > 1:
        yield f"I12: it asked for one run and got {len(claims)}"
    for claim in claims:
        attempt = told.runs[claim.run_id].attempt(claim.number) if claim.run_id in told.runs else None
        if attempt is None or attempt.worker_id != worker:
            yield f"it was handed attempt {claim.number}, which is recorded as {attempt}"


def _renewed(told: Told) -> Complaints:
    """I14: a dead worker stays dead, a living one lives on. I27: a renewal tells of a cancel."""
    dead = told.case.situation.startswith("expired")
    if isinstance(told.answer.error, LeaseLost):
        if not told.case.holder_dies:
            yield "I14: a living worker was told that its lease is lost"
        return
    renewal: Renewal = told.answer.value
    ref = told.case.held().ref
    if dead:
        yield "I14: a worker whose lease had passed was renewed"
    if told.case.situation.endswith("flagged") and ref in renewal.held and ref not in renewal.cancelled:
        yield "I27: the renewal did not tell that the run was cancelled"


def _finished(told: Told) -> Complaints:
    """I11: an accepted ending is the one recorded; a refused one left no trace."""
    value: Any = told.answer.value
    acks: list[Acknowledgement] = value[0] if isinstance(value, tuple) else value
    if isinstance(value, tuple):
        yield from _claimed(told, told.case.holder, value[1])
    attempt = told.run.attempt(told.case.held().number)
    mine = attempt is not None and attempt.worker_id == told.case.holder and attempt.status != "LOST"
    if value == WRITTEN:
        if not mine:
            yield f"it found its ending written, but recorded is {attempt}"
        return
    (ack,) = acks
    if ack.accepted and told.case.situation.startswith("expired"):
        yield "I11: an ending was accepted after the lease had passed"
    if ack.accepted and attempt is not None:
        if not mine or (attempt.status, attempt.outcome) != (ack.status, ack.outcome):
            yield f"it was told {ack}, recorded is {attempt}"
        elif attempt.status == "SUCCEEDED" and attempt.result != f'"by {told.who}"':
            yield f"its result was accepted, recorded is {attempt.result}"
    elif ack.accepted and not told.pruned:
        yield "its ending was accepted, but nothing is recorded"
    elif not ack.accepted and mine and not told.answer.doubted and not told.other_finisher:
        yield f"its ending was refused, but recorded is {attempt}"
    if not ack.accepted and attempt is not None and attempt.result == f'"by {told.who}"' and not told.answer.doubted:
        yield "its ending was refused, but its result is recorded"
    if not ack.accepted and not any(event.type == "FENCED" for event in told.run.events) and not told.pruned:
        yield "I11: its ending was refused without a FENCED event"


def _released(told: Told) -> Complaints:
    """What was released leaves no attempt of its holder, unless its holder had ended it. Refusals leave no trace."""
    (ack,) = told.answer.value
    attempt = told.run.attempt(told.case.held().number)
    mine = attempt is not None and attempt.worker_id == told.case.holder and attempt.status != "LOST"
    if ack.accepted and told.case.situation.startswith("expired"):
        yield "I11: a claim was released after its lease had passed"
    if ack.status == RELEASED and mine and not told.other_finisher:
        yield f"it was told that the claim is released, recorded is {attempt}"
    if told.case.situation == "flagged" and ack.status == RELEASED:
        yield "I26: a run that was asked to stop went back to its queue"
    if ack.accepted and ack.status != RELEASED and ack.outcome != "CANCELLED":
        yield f"a claim that was not begun ended {ack.outcome}"


def _taken_over(told: Told) -> Complaints:
    """I11: one worker at most takes an attempt over; a refusal has a reason and is recorded."""
    claim: Claim | None = told.answer.value
    taker, ref, situation = told.case.claimers[told.who], told.case.held().ref, told.case.situation
    attempt = told.run.attempt(ref.number)
    mine = attempt is not None and attempt.worker_id == taker
    if claim is not None and (claim.ref != ref or not mine) and not (told.pruned and attempt is None):
        yield f"it took attempt {ref.number} over, which is recorded as {attempt}"
    if claim is not None and situation.endswith("flagged"):
        yield "I26: an attempt that was asked to stop was taken over"
    if claim is None and mine:
        yield f"its take-over was refused, but recorded is {attempt}"
    if claim is None and not any(event.type == "FENCED" for event in told.run.events) and not told.pruned:
        yield "I11: its take-over was refused without a FENCED event"
    if claim is None and situation in ("leased", "last") and told.partner in _LEAVES_THE_LEASE:
        yield "its take-over was refused although nobody else had the lease"
    # A take-over is the only event of its attempt between the claim and a cancel.
    types = [event.type for event in told.run.events if event.attempt == ref.number]
    if "TAKEN_OVER" in types and types[types.index("TAKEN_OVER") - 1] not in ("CLAIMED", "TAKEN_OVER", "FENCED"):
        yield f"the events of attempt {ref.number} are {types}"


def _noted(told: Told) -> Complaints:
    """What was kept is there, and what was refused is not."""
    kind = "step" if told.program == "step" else "line"
    what = f"{kind} of {told.who}"
    there = [note for note in told.run.notes if note.kind == kind and note.what == what]
    if told.answer.value and not there:
        yield f"it was told that its {kind} is kept, and it is not there"
    if not told.answer.value and there and not told.answer.doubted:
        yield f"it was told that its {kind} was refused, and it is there"
    if len(there) > 1:
        yield f"its {kind} is there {len(there)} times"


def _cancelled(told: Told) -> Complaints:
    """I26: what was cancelled, or asked to stop, never succeeds, and the answer says which."""
    endings = [attempt.outcome for attempt in told.run.attempts if attempt.outcome is not None]
    if told.pruned and not told.run.exists:
        return
    if isinstance(told.answer.error, RunEnded):
        if not {"SUCCEEDED", "FAILED"} & set(endings):
            yield f"it was told that the run had ended, its endings are {endings}"
        return
    if isinstance(told.answer.error, RunNotFound):
        return
    record: RunRecord = told.answer.value
    if "CANCELLED" not in endings:
        yield f"it was told {record.status}, asked at {record.cancel_requested_at}; its endings are {endings}"
    elif not told.run.reopened and told.run.status != "CANCELLED":
        yield f"it was told {record.status}, but the run ended {told.run.status}"


def _retried(told: Told) -> Complaints:
    reopened = any(attempt.reopened_by == f"person {told.who}" for attempt in told.run.attempts)
    if told.answer.error is None and not reopened:
        yield "it was told that the run is reopened, but no ending is"
    if told.answer.error is None and not told.run.exists:
        yield "I42: it was told that the run is reopened, and the run is gone"
    if isinstance(told.answer.error, RunEnded) and reopened and not told.answer.doubted:
        yield "it was told that the run cannot be reopened, but it was"


def _rescued(told: Told) -> Complaints:
    for ack in told.answer.value:
        attempt = told.runs[ack.ref.run_id].attempt(ack.ref.number)
        if attempt is None and told.pruned:
            continue
        if attempt is None or attempt.status != "LOST":
            yield f"it was told {ack}, recorded is {attempt}"


def _pruned(told: Told) -> Complaints:
    """I42: what is live, or what a key points to, is not forgotten."""
    for run in told.runs.values():
        if not run.exists and (run.places or run.attempts or run.keys):
            yield f"run {run.run_id} is gone, but left {run.places}, {len(run.attempts)} attempts and keys {run.keys}"


def _anything(told: Told) -> Complaints:
    yield from ()


_CHECKS: dict[str, Callable[[Told], Complaints]] = {
    "submit": _submitted,
    "submit_first": _submitted,
    "submit_batch": _batched,
    "submit_key": _keyed,
    "submit_other": _keyed,
    "submit_in": _keyed,
    "submit_dedupe": _deduplicated,
    "claim": _claimed,
    "claim_by_id": _claimed,
    "renew": _renewed,
    "cancel": _cancelled,
    "retry": _retried,
    "rescue": _rescued,
    "release": _released,
    "take_over": _taken_over,
    "promote": _anything,
    "name_tasks": _anything,
    "step": _noted,
    "log": _noted,
    "prune": _pruned,
    **dict.fromkeys(FINISHERS, _finished),
}
