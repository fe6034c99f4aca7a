"""What must hold at the end in every case: the numbered invariants, each a small function over a run's history.

The numbers are those of the project's list of invariants. Those about the responses that callers receive (I1 to I5,
I12, I14, I26, I27, I42) are in `answers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise

from holdfast.domain.settling import after_failure, policy_of
from holdfast.domain.states import FINAL, MOVES, Status
from tests.explorer.history import Ended, History

Complaints = Iterator[str]

# A statement has the time at which it began, and sees what was committed until its snapshot, a moment later. So a claim
# can have an earlier time than the submit whose commit it saw, if the server was busy in between.
SNAPSHOT_WITHIN = timedelta(seconds=0.5)


def i9_leases_do_not_overlap(run: History) -> Complaints:
    for earlier, later in pairwise(_numbered(run)):
        if later.claimed_at is not None and later.claimed_at < earlier.finished_at:
            yield f"attempt {later.number} was claimed before attempt {earlier.number} ended"


def i9_an_attempt_ends_after_its_claim(run: History) -> Complaints:
    for attempt in _numbered(run):
        seen = run.created_at - SNAPSHOT_WITHIN
        times = [at for at in (seen, attempt.claimed_at, attempt.finished_at) if at is not None]
        if times != sorted(times):
            yield f"the times of attempt {attempt.number} are out of order: {[str(at) for at in times]}"


def i10_attempts_count_without_gap(run: History) -> Complaints:
    numbers = [attempt.number for attempt in _numbered(run)]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"attempts are numbered {numbers}"


def i11_only_a_living_worker_ends_an_attempt(run: History) -> Complaints:
    for attempt in _numbered(run):
        alive = attempt.expires_at is None or attempt.finished_at < attempt.expires_at
        if attempt.status != "LOST" and not alive:
            yield f"attempt {attempt.number} ended {attempt.status} after its lease had expired"


def i11_only_under_a_lease_is_anything_noted(run: History) -> Complaints:
    """A step must not be stored after its attempt has ended: the next attempt may already have checked for it.

    A log line written while an attempt is being ended does no harm, nor one that another worker copies from the output
    of its process until the attempt is lost.
    """
    for note in run.notes:
        attempt = run.attempt(note.attempt)
        if attempt is None:
            yield f"{note.kind} {note.what!r} is of attempt {note.attempt}, which is not there"
        elif note.what.startswith("copied by"):
            continue
        elif attempt.expires_at is not None and note.at >= attempt.expires_at:
            yield f"{note.kind} {note.what!r} was noted after the lease of attempt {note.attempt} had passed"
        elif note.kind == "step" and note.at > attempt.finished_at:
            yield f"step {note.what!r} was kept after attempt {note.attempt} had ended"


def i16_only_what_a_dead_worker_held_is_lost(run: History) -> Complaints:
    for attempt in _numbered(run):
        if attempt.status == "LOST" and attempt.expires_at is not None and attempt.finished_at < attempt.expires_at:
            yield f"attempt {attempt.number} was declared LOST while its lease was valid"


def i17_everything_ends(run: History) -> Complaints:
    if run.status not in FINAL:
        yield f"it is {run.status} in {run.places or 'no place'}, although a worker had enough time to finish it"
    elif run.places:
        yield f"it ended {run.status} and is in {run.places} as well"


def i19_only_listed_moves_happen(run: History) -> Complaints:
    moves = [event for event in run.events if event.to_status is not None]
    if not moves or moves[0].type != "SUBMITTED":
        yield f"its history begins with {moves[:1]}"
    for before, event in pairwise(moves):
        if event.from_status != before.to_status:
            yield f"event {event.seq} {event.type} is from {event.from_status}, but the run was {before.to_status}"
        elif (Status(event.from_status or ""), Status(event.to_status or "")) not in MOVES:
            yield f"event {event.seq} {event.type} moved it from {event.from_status} to {event.to_status}"


def i20_one_ending_is_in_force(run: History) -> Complaints:
    endings = [a for a in run.attempts if a.outcome is not None]
    in_force = [a.number for a in endings if a.reopened_at is None]
    if len(in_force) != 1:
        yield f"the endings in force are those of attempts {in_force}"
    reported = sum(event.to_status in FINAL for event in run.events)
    if reported != len(endings):
        yield f"{reported} ends are in its events, {len(endings)} are stored"


def i21_a_success_has_a_result_and_nothing_else_has(run: History) -> Complaints:
    for attempt in run.attempts:
        has = (attempt.result is not None) + (attempt.result_ref is not None)
        if has != (attempt.status == "SUCCEEDED"):
            yield f"attempt {attempt.number} is {attempt.status} with {has} results"
    if (run.status == "SUCCEEDED") != any(a.status == "SUCCEEDED" for a in run.attempts):
        yield f"the run is {run.status}, its attempts are {[a.status for a in run.attempts]}"


def i23_the_budget_is_kept(run: History) -> Complaints:
    for spent in _spent(run):
        if len(spent) > run.max_attempts:
            yield f"attempts {[a.number for a in spent]} used a budget of {run.max_attempts}"


def i23_no_attempt_is_withheld(run: History) -> Complaints:
    ending = run.ending
    if ending is None or ending.status not in ("FAILED", "LOST") or ending.outcome != "FAILED":
        return
    if ending.status == "LOST" and len(_spent(run)[-1]) < run.max_attempts:
        yield f"it failed after {len(_spent(run)[-1])} of {run.max_attempts} attempts, although it was only lost"


def i25_nothing_starts_before_its_time(run: History) -> Complaints:
    for attempt in _numbered(run):
        if run.run_after is not None and attempt.claimed_at is not None and attempt.claimed_at < run.run_after:
            yield f"attempt {attempt.number} was claimed before run_after"
    for group in _spent(run):
        for place, attempt in enumerate(group, 1):
            following = run.attempt(attempt.number + 1)
            if attempt.outcome is not None or following is None or following.claimed_at is None:
                continue
            crashed = sum(_crashed(a) for a in run.attempts if a.number < attempt.number)
            _, rest = after_failure(
                policy_of(run.policy), spent=place, crashes=crashed if _crashed(attempt) else None, random=0.5
            )
            cut_short = any(a.reopened_at and a.reopened_at > attempt.finished_at for a in run.attempts)
            if not cut_short and (following.claimed_at - attempt.finished_at).total_seconds() < rest:
                yield f"attempt {following.number} did not wait {rest} s after attempt {attempt.number}"


def i26_after_a_cancel_only_cancelled(run: History) -> Complaints:
    for event in run.events:
        if event.type == "CANCEL_REQUESTED":
            attempt = run.attempt(event.attempt)
            if attempt is None or attempt.outcome != "CANCELLED":
                yield f"attempt {event.attempt} had a cancel request and ended {attempt and attempt.outcome}"


def i33_events_add_up_to_the_status(run: History) -> Complaints:
    reported = [event.to_status for event in run.events if event.to_status is not None]
    if not reported or reported[-1] != run.status:
        yield f"its events end in {reported[-1:]}, it is {run.status}"


def i34_events_are_counted_without_gap(run: History) -> Complaints:
    numbers = [event.seq for event in run.events]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"its events are numbered {numbers}"


def i34_events_never_go_back_in_time(run: History) -> Complaints:
    for before, event in pairwise(run.events):
        if event.at < before.at:
            yield f"event {event.seq} {event.type} is earlier than event {before.seq} {before.type}"


def counters_are_exact(runs: Sequence[History], counted: dict[str, int]) -> Complaints:
    """Compare the counters of a task with all of its runs."""
    expected: Counter[str] = Counter(created=sum(run.exists for run in runs))
    for run in runs:
        expected.update(attempt.outcome or "retried" for attempt in run.attempts)
        expected.update("lost" for attempt in run.attempts if attempt.status == "LOST")
        expected.update(f"reopened {attempt.outcome}" for attempt in run.attempts if attempt.reopened_at is not None)
        expected.update("fenced" for event in run.events if event.type == "FENCED")
    reported = {kind: amount for kind, amount in counted.items() if kind != "lag"}
    if reported != +expected:
        yield f"counted {reported}, happened {dict(+expected)}"


def _numbered(run: History) -> list[Ended]:
    return sorted((a for a in run.attempts if a.number >= 1), key=lambda a: a.number)


def _crashed(attempt: Ended) -> bool:
    return attempt.status == "LOST" or attempt.reason == "crash"


def _spent(run: History) -> list[list[Ended]]:
    """The attempts that count, in groups: each reopening begins a new group."""
    groups: list[list[Ended]] = [[]]
    for attempt in sorted(run.attempts, key=lambda a: a.finished_at):
        if attempt.number >= 1 and attempt.reason not in ("handed-back", "postponed"):
            groups[-1].append(attempt)
        if attempt.reopened_at is not None:
            groups.append([])
    return groups


INVARIANTS: dict[str, Callable[[History], Complaints]] = {
    function.__name__: function
    for function in (
        i9_leases_do_not_overlap,
        i9_an_attempt_ends_after_its_claim,
        i10_attempts_count_without_gap,
        i11_only_a_living_worker_ends_an_attempt,
        i11_only_under_a_lease_is_anything_noted,
        i16_only_what_a_dead_worker_held_is_lost,
        i17_everything_ends,
        i19_only_listed_moves_happen,
        i20_one_ending_is_in_force,
        i21_a_success_has_a_result_and_nothing_else_has,
        i23_the_budget_is_kept,
        i23_no_attempt_is_withheld,
        i25_nothing_starts_before_its_time,
        i26_after_a_cancel_only_cancelled,
        i33_events_add_up_to_the_status,
        i34_events_are_counted_without_gap,
        i34_events_never_go_back_in_time,
    )
}
