"""The responses that callers received, compared with what was stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from holdfast.domain.errors import KeyReused, LeaseLost, RunEnded, RunNotFound
from holdfast.domain.values import RELEASED, Acknowledgement, Claim, Renewal, RunRecord, Submitted
from tests.explorer import hand_over, remote
from tests.explorer.actor import Answer
from tests.explorer.history import History
from tests.explorer.postpone import check_postponed
from tests.explorer.programs import WRITTEN, Case

Complaints = Iterator[str]

# They skip locked rows; only dropping a month makes them wait.
NEVER_WAIT = ("claim", "promote", "name_tasks", "claim_and_leave", "adopt", "look_after", "over")
FINISHERS = ("succeed", "fail", "fail_for_good", "hand_back", "postpone_itself", "turn")
ENDS_OR_RELEASES = (*FINISHERS, "release")
_LEAVES_THE_LEASE = (
    "submit", "hand_over", "claim", "claim_by_id", "renew", "step", "log", "retry", "rescue", "promote"
)  # fmt: skip


@dataclass(slots=True)
class Observation:
    """One caller's response, the other programs, and how the runs of their case ended."""

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

    def mine(self, reason: str | None) -> bool:
        """Whether an event was caused by this caller."""
        return reason is not None and reason.endswith(f"person {self.who}")

    @property
    def other_finisher(self) -> bool:
        return self.partner in ENDS_OR_RELEASES


def check(seen: Observation) -> Complaints:
    """Yield everything wrong with one caller's response."""
    if seen.waited and seen.program in NEVER_WAIT and seen.partner != "prune" and not seen.answer.doubted:
        yield "it waited for a lock, and so would all later ones"
    if seen.deadlocked:
        yield "I37: it was the victim of a deadlock; it is retried, but the other one has waited a second for it"
    if seen.program == "submit_batch":
        yield from _all_or_none(seen)
    if not seen.answer.received:
        return
    error = seen.answer.error
    if isinstance(error, psycopg.Error):
        yield f"the database rejected it: {str(error).splitlines()[0]}"
    elif error is not None and not _expected(seen, error):
        yield f"it received {type(error).__name__}: {error}"
    else:
        yield from _CHECKS[seen.program](seen)


def _expected(seen: Observation, error: Exception) -> bool:
    missing = seen.pruned or seen.case.situation in ("fresh", "old_fresh") or bool(seen.case.waiters)
    match seen.program:
        case "cancel" | "postpone" | "retry":
            return isinstance(error, RunEnded) or (isinstance(error, RunNotFound) and missing)
        case "renew":
            return isinstance(error, LeaseLost)
        case "submit_key" | "submit_other" | "submit_in" | "hand_over_key":
            reused = isinstance(error, KeyReused) and "submit_other" in (seen.program, seen.partner)
            return reused or (isinstance(error, RunNotFound) and seen.pruned)
        case "submit" | "submit_first" | "submit_batch" | "submit_dedupe" | "hand_over" | "hand_over_first":
            return isinstance(error, RunNotFound) and seen.pruned
        case _:
            return False


def _submitted(seen: Observation) -> Complaints:
    """I1: acknowledged runs exist. I2: one key, one run."""
    answer = seen.answer.value
    if isinstance(seen.answer.error, KeyReused):
        if seen.answer.error.fields != ("/parameters/n",):
            yield f"KeyReused names {seen.answer.error.fields}"
        return
    if not isinstance(answer, Submitted):
        return
    run_id = answer.run.id
    if run_id not in seen.runs:
        yield f"it received the run of another request: {run_id}"
    elif not seen.runs[run_id].exists and not seen.pruned:
        yield f"it received run {run_id}, which does not exist"
    if answer.run.parameters != {"n": 2 if seen.program == "submit_other" else 1}:
        yield f"I3: it received a run with {answer.run.parameters}"
    requested = run_id
    if seen.program in ("submit", "hand_over"):
        requested = seen.case.run_id
    elif seen.program in ("submit_first", "hand_over_first"):
        requested = seen.case.others[seen.who]
    if run_id != requested:
        yield f"it requested run {requested} and received {run_id}"
    if seen.program in ("submit_first", "hand_over_first") and not answer.created and not seen.answer.doubted:
        yield f"it created {run_id}, and the response says that another request did"
    if answer.created and seen.program not in ("submit", "hand_over") and run_id != seen.case.others[seen.who]:
        yield f"the response says that it created {run_id}"


def _all_or_none(seen: Observation) -> Complaints:
    """All or none of a batch exists, even if its caller died."""
    mine = seen.case.batches[seen.who]
    made = [run_id for run_id in mine if seen.runs[run_id].exists]
    if made and len(made) < len(mine) and not seen.pruned:
        yield f"of {len(mine)} runs of one request {len(made)} exist"
    if not made and seen.answer.value and not seen.pruned:
        yield "I1: it received runs that do not exist"


def _batched(seen: Observation) -> Complaints:
    requested, answers = list(seen.case.batches[seen.who]), seen.answer.value
    if answers is not None and [answer.run.id for answer in answers] != requested:
        yield f"it requested {requested} and received {answers}"
    if answers is not None and not seen.answer.doubted and not all(answer.created for answer in answers):
        yield f"it created {requested}, and the response says that another request created some of them"


def _keyed(seen: Observation) -> Complaints:
    yield from _submitted(seen)
    made = [run_id for run_id in seen.case.others if seen.runs[run_id].exists]
    others = ("submit_dedupe", "hand_over_dedupe", "hand_over_first", "submit_first")
    if seen.partner not in others and len(made) > 1:
        yield f"one key made {len(made)} runs"
    known = seen.case.situation not in hand_over.WITHOUT_A_RUN and seen.case.month is None
    answer = seen.answer.value
    if isinstance(answer, Submitted) and known and answer.run.id != seen.case.run_id:
        yield f"the key belongs to {seen.case.run_id}, it received {answer.run.id}"
    if isinstance(answer, Submitted) and answer.created and not seen.pruned:
        keys = seen.runs[answer.run.id].keys
        if keys != [seen.case.new.key]:
            yield f"I5: its run is there with keys {keys}"


def _deduplicated(seen: Observation) -> Complaints:
    yield from _submitted(seen)
    answer = seen.answer.value
    if not isinstance(answer, Submitted) or not answer.created:
        return
    mine = seen.runs[answer.run.id]
    rivals = [seen.case.run_id] if seen.case.situation not in hand_over.WITHOUT_A_RUN else []
    if seen.partner in ("submit_dedupe", "hand_over_dedupe"):
        rivals.append(seen.case.others[1 - seen.who])
    for rival in rivals:
        if rival != mine.run_id and _active_at(seen.runs[rival], mine.created_at):
            yield f"it made {mine.run_id} while {rival} was active with the same payload"


def _active_at(run: History, at: datetime | None) -> bool:
    """Whether the run was active and could be found. A run that is reopened at the same time may be too late."""
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


def _claimed(seen: Observation, worker: str | None = None, claims: list[Claim] | None = None) -> Complaints:
    """I12, and each claim is recorded for the worker that received it."""
    claims = seen.answer.value if claims is None else claims
    worker = worker or seen.case.claimers[seen.who]
    if len(claims) > 1:
        yield f"I12: it requested one run and received {len(claims)}"
    for claim in claims:
        attempt = seen.runs[claim.run_id].attempt(claim.number) if claim.run_id in seen.runs else None
        if attempt is None or attempt.worker_id != worker:
            yield f"it was handed attempt {claim.number}, which is recorded as {attempt}"


def _renewed(seen: Observation) -> Complaints:
    """I14: a dead worker stays dead, and a live one is renewed. I27: a renewal returns cancel requests."""
    dead = seen.case.situation.startswith("expired")
    if isinstance(seen.answer.error, LeaseLost):
        if not seen.case.holder_dies:
            yield "I14: a live worker received LeaseLost"
        return
    renewal: Renewal = seen.answer.value
    ref = seen.case.held().ref
    if dead:
        yield "I14: an expired worker was renewed"
    if seen.case.situation.endswith("flagged") and ref in renewal.held and ref not in renewal.cancelled:
        yield "I27: the renewal did not report the cancel request"


def _finished(seen: Observation) -> Complaints:
    """I11: an accepted outcome is recorded; a rejected one left no trace."""
    value: Any = seen.answer.value
    acks: list[Acknowledgement] = value[0] if isinstance(value, tuple) else value
    if isinstance(value, tuple):
        yield from _claimed(seen, seen.case.holder, value[1])
    attempt = seen.run.attempt(seen.case.held().number)
    mine = attempt is not None and attempt.worker_id == seen.case.holder and attempt.status != "LOST"
    if value == WRITTEN:
        if not mine:
            yield f"it found its ending written, but recorded is {attempt}"
        return
    (ack,) = acks
    if ack.accepted and seen.case.situation.startswith("expired"):
        yield "I11: a finish was accepted after the lease had expired"
    if ack.accepted and attempt is not None:
        if not mine or (attempt.status, attempt.outcome) != (ack.status, ack.outcome):
            yield f"it received {ack}, recorded is {attempt}"
        elif attempt.status == "SUCCEEDED" and attempt.result != f'"by {seen.who}"':
            yield f"its result was accepted, recorded is {attempt.result}"
    elif ack.accepted and not seen.pruned:
        yield "its finish was accepted, but nothing is stored"
    elif not ack.accepted and mine and not seen.answer.doubted and not seen.other_finisher:
        yield f"its finish was rejected, but stored is {attempt}"
    if not ack.accepted and attempt is not None and attempt.result == f'"by {seen.who}"' and not seen.answer.doubted:
        yield "its finish was rejected, but its result is stored"
    if not ack.accepted and not any(event.type == "FENCED" for event in seen.run.events) and not seen.pruned:
        yield "I11: its finish was rejected without a FENCED event"


def _released(seen: Observation) -> Complaints:
    """A released claim leaves no attempt of its holder, unless the holder had ended it. Rejections leave no trace."""
    (ack,) = seen.answer.value
    attempt = seen.run.attempt(seen.case.held().number)
    mine = attempt is not None and attempt.worker_id == seen.case.holder and attempt.status != "LOST"
    if ack.accepted and seen.case.situation.startswith("expired"):
        yield "I11: a claim was released after its lease had expired"
    if ack.status == RELEASED and mine and not seen.other_finisher:
        yield f"the response says that the claim is released, recorded is {attempt}"
    if seen.case.situation == "flagged" and ack.status == RELEASED:
        yield "I26: a run with a cancel request returned to its queue"
    if ack.accepted and ack.status != RELEASED and ack.outcome != "CANCELLED":
        yield f"a claim that was not begun ended {ack.outcome}"


def _taken_over(seen: Observation) -> Complaints:
    """I11: at most one worker takes over an attempt; a refusal has a reason and is recorded."""
    claim: Claim | None = seen.answer.value
    taker, ref, situation = seen.case.claimers[seen.who], seen.case.held().ref, seen.case.situation
    attempt = seen.run.attempt(ref.number)
    mine = attempt is not None and attempt.worker_id == taker
    if claim is not None and (claim.ref != ref or not mine) and not (seen.pruned and attempt is None):
        yield f"it took attempt {ref.number} over, which is recorded as {attempt}"
    if claim is not None and situation.endswith("flagged"):
        yield "I26: an attempt that was asked to stop was taken over"
    if claim is None and mine:
        yield f"its take-over was refused, but recorded is {attempt}"
    if claim is None and not any(event.type == "FENCED" for event in seen.run.events) and not seen.pruned:
        yield "I11: its take-over was refused without a FENCED event"
    if claim is None and situation in ("leased", "last") and seen.partner in _LEAVES_THE_LEASE:
        yield "its take-over was refused although no other worker had the lease"
    # A take-over is the only event of its attempt between the claim and a cancel.
    types = [event.type for event in seen.run.events if event.attempt == ref.number]
    if "TAKEN_OVER" in types and types[types.index("TAKEN_OVER") - 1] not in ("CLAIMED", "TAKEN_OVER", "FENCED"):
        yield f"the events of attempt {ref.number} are {types}"


def _noted(seen: Observation) -> Complaints:
    """Accepted steps and log lines exist, and rejected ones do not."""
    kind = "step" if seen.program == "step" else "line"
    what = f"{kind} of {seen.who}"
    there = [note for note in seen.run.notes if note.kind == kind and note.what == what]
    if seen.answer.value and not there:
        yield f"the response says that its {kind} is stored, but it does not exist"
    if not seen.answer.value and there and not seen.answer.doubted:
        yield f"the response says that its {kind} was rejected, but it exists"
    if len(there) > 1:
        yield f"its {kind} is there {len(there)} times"


def _cancelled(seen: Observation) -> Complaints:
    """I26: a run that was cancelled, or is being cancelled, never succeeds, and the response says which."""
    endings = [attempt.outcome for attempt in seen.run.attempts if attempt.outcome is not None]
    if seen.pruned and not seen.run.exists:
        return
    if isinstance(seen.answer.error, RunEnded):
        if not {"SUCCEEDED", "FAILED"} & set(endings):
            yield f"the response says that the run had ended; its ends are {endings}"
        return
    if isinstance(seen.answer.error, RunNotFound):
        return
    record: RunRecord = seen.answer.value
    if "CANCELLED" not in endings:
        yield f"it received {record.status}, requested at {record.cancel_requested_at}; its endings are {endings}"
    elif not seen.run.reopened and seen.run.status != "CANCELLED":
        yield f"it received {record.status}, but the run ended {seen.run.status}"


def _retried(seen: Observation) -> Complaints:
    reopened = any(attempt.reopened_by == f"person {seen.who}" for attempt in seen.run.attempts)
    if seen.answer.error is None and not reopened:
        yield "the response says that the run is reopened, but no end is"
    if seen.answer.error is None and not seen.run.exists:
        yield "I42: the response says that the run is reopened, but the run is gone"
    if isinstance(seen.answer.error, RunEnded) and reopened and not seen.answer.doubted:
        yield "the response says that the run cannot be reopened, but it was"


def _rescued(seen: Observation) -> Complaints:
    for ack in seen.answer.value:
        attempt = seen.runs[ack.ref.run_id].attempt(ack.ref.number)
        if attempt is None and seen.pruned:
            continue
        if attempt is None or attempt.status != "LOST":
            yield f"it received {ack}, recorded is {attempt}"


def _pruned(seen: Observation) -> Complaints:
    """I42: live runs, and runs of unexpired keys, are not removed."""
    for run in seen.runs.values():
        if not run.exists and (run.places or run.attempts or run.keys):
            yield f"run {run.run_id} is gone, but left {run.places}, {len(run.attempts)} attempts and keys {run.keys}"


def _anything(seen: Observation) -> Complaints:
    yield from ()


def _left_and_claimed(seen: Observation) -> Complaints:
    yield from hand_over.check_left(seen, _claimed(seen, seen.case.waiters[0], seen.answer.value[1]))


_CHECKS: dict[str, Callable[[Observation], Complaints]] = {
    "submit": _submitted,
    "submit_first": _submitted,
    "submit_batch": _batched,
    "submit_key": _keyed,
    "submit_other": _keyed,
    "submit_in": _keyed,
    "submit_dedupe": _deduplicated,
    "hand_over": hand_over.and_handed(_submitted),
    "hand_over_first": hand_over.and_handed(_submitted),
    "hand_over_key": hand_over.and_handed(_keyed),
    "hand_over_dedupe": hand_over.and_handed(_deduplicated),
    "wait_again": hand_over.check_waits,
    "adopt": hand_over.check_adopted,
    "claim_and_leave": _left_and_claimed,
    "drain_waiter": _anything,
    "stop_waiter": _anything,
    "claim": _claimed,
    "claim_by_id": _claimed,
    "renew": _renewed,
    "cancel": _cancelled,
    "postpone": check_postponed,
    "retry": _retried,
    "rescue": _rescued,
    "release": _released,
    "take_over": _taken_over,
    "look_after": remote.check_looked_after,
    "note_late": remote.check_noted,
    "over": remote.check_over,
    "promote": _anything,
    "name_tasks": _anything,
    "step": _noted,
    "log": _noted,
    "prune": _pruned,
    **dict.fromkeys(FINISHERS, _finished),
}
