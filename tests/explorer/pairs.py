"""Which two programs meet in which situations: those in which both can affect the same run."""

from __future__ import annotations

from itertools import combinations_with_replacement

from tests.explorer.hand_over import HANDING, OF_THE_WAITER
from tests.explorer.remote import LOOKING, REMOTE
from tests.explorer.schedule import Meeting
from tests.explorer.situations import SITUATIONS

_WAITED = " waited waited_ready waited_expiring"
_NOT_GIVEN = " waited_paused waited_other waited_expired waited_drained waited_stopped"

# Without a program that looks after remote attempts, they are like others that were taken over.
_REMOTE = " " + " ".join(REMOTE)

_SPANS: dict[str, str] = {
    "submit": "fresh ready leased scheduled succeeded" + _WAITED,
    "submit_first": "fresh ready" + _WAITED,
    "submit_batch": "fresh ready waited",
    "submit_key": "fresh ready leased failed succeeded key_expired waited",
    "submit_other": "fresh ready key_expired",
    "submit_in": "fresh ready key_expired",
    "submit_dedupe": "fresh ready leased flagged resting failed withdrawn succeeded waited",
    "hand_over": "fresh ready leased flagged scheduled succeeded waited_twice" + _WAITED + _NOT_GIVEN,
    "hand_over_first": "fresh ready waited_twice" + _WAITED + _NOT_GIVEN,
    "hand_over_key": "fresh ready key_expired waited_twice" + _WAITED,
    "hand_over_dedupe": "fresh ready" + _WAITED,
    "wait_again": "waited_twice" + _WAITED + _NOT_GIVEN,
    "adopt": "waited_twice" + _WAITED + _NOT_GIVEN,
    "claim_and_leave": "waited_twice" + _WAITED + _NOT_GIVEN,
    "drain_waiter": "waited_twice" + _WAITED,
    "stop_waiter": "waited_twice" + _WAITED,
    "claim": "fresh ready unnamed leased flagged expired expiring due falling_due rested failed withdrawn stopped "
    "reopened lost" + _WAITED,
    "claim_by_id": "fresh ready unnamed leased flagged expired expired_last expired_flagged expiring expiring_flagged "
    "due falling_due rested failed withdrawn reopened taken taken_late expired_taken expiring_taken"
    + _WAITED
    + _REMOTE,
    "renew": "leased flagged expired expiring expiring_flagged taken taken_flagged expired_taken" + _REMOTE,
    "succeed": "leased flagged expired expired_flagged expiring expiring_flagged taken taken_flagged "
    "expired_taken expiring_taken" + _REMOTE,
    "fail": "leased last flagged expired expiring taken taken_flagged expired_taken" + _REMOTE,
    "fail_for_good": "leased flagged expired expiring",
    "hand_back": "leased last flagged expired expiring taken taken_flagged expired_taken" + _REMOTE,
    "postpone_itself": "leased last flagged expired expiring",
    "release": "leased last flagged expired expiring taken taken_flagged expired_taken" + _REMOTE,
    "turn": "leased last flagged expired expiring taken taken_flagged expired_taken" + _REMOTE,
    "take_over": "leased last flagged expired expired_last expired_flagged expiring expiring_flagged taken taken_late "
    "taken_flagged expired_taken expiring_taken lost resting rested failed succeeded reopened" + _REMOTE,
    "look_after": _REMOTE,
    "note_late": _REMOTE,
    "over": "leased resting succeeded lost" + _REMOTE,
    "step": "leased flagged expired expiring taken taken_flagged expired_taken",
    "log": "leased expired expiring",
    "cancel": "fresh ready unnamed leased last flagged expired expired_flagged expiring scheduled due falling_due "
    "resting rested failed withdrawn stopped succeeded reopened taken expired_taken lost" + _WAITED + _REMOTE,
    "postpone": "fresh ready unnamed leased flagged expired expiring scheduled due falling_due resting rested failed "
    "withdrawn succeeded reopened" + _WAITED,
    "retry": "ready leased last flagged due expired_last failed withdrawn stopped succeeded taken waited_ready",
    "rescue": "leased expired expired_last expired_flagged expiring expiring_flagged taken taken_late "
    "expired_taken expiring_taken" + _WAITED + _REMOTE,
    "promote": "leased scheduled due falling_due resting rested",
    "name_tasks": "unnamed",
    "prune": "",
}

# Where keys matter, another payload with the same key, or a request inside its caller's transaction, is a separate
# case; elsewhere they add nothing.
_SPECIAL = {"submit_other", "submit_in", "hand_over_key", "hand_over_dedupe"}
_WITH_SPECIAL = {"submit_key", "submit_dedupe", "claim", "cancel", "prune", *OF_THE_WAITER} | _SPECIAL

# Other programs do not know the ids that a request generates: only those that claim any run can meet it.
_OWN = {"submit_first", "submit_batch", "hand_over_first"}
_WITH_OWN = {"submit_dedupe", "claim", "prune", "hand_over", *OF_THE_WAITER} | _OWN

# Steps and log lines end no attempt: they meet the programs that do, and each other.
_NOTES = {"step", "log"}
_WITH_NOTES = {"claim_by_id", "take_over", "succeed", "fail", "hand_back", "release", "turn", "rescue", "step"}


# Two refusals of seven statements each have thousands of interleavings; only these situations differ.
_TWICE = {"take_over": ["leased", "expired", "flagged"]}


def _situations(first: str, second: str) -> list[str]:
    if first == second and first in _TWICE:
        return _TWICE[first]
    if "prune" in (first, second):
        other = second if first == "prune" else first
        spans = _SPANS[other].split() if other != "prune" else ["ready", "failed", "succeeded", "key_expired"]
        return [f"old_{name}" for name in spans if f"old_{name}" in SITUATIONS]
    return [name for name in _SPANS[first].split() if name in _SPANS[second].split()]


def meetings() -> list[Meeting]:
    """Return every pair of programs, including a program with itself, in every situation that suits both."""
    return [
        Meeting(first, second, situation)
        for first, second in combinations_with_replacement(_SPANS, 2)
        if not _SPECIAL & {first, second} or {first, second} <= _WITH_SPECIAL
        if not _OWN & {first, second} or {first, second} <= _WITH_OWN
        if not _NOTES & {first, second} or {first, second} - _NOTES <= _WITH_NOTES
        for situation in _situations(first, second)
        if not situation.startswith("waited") or {first, second} & set(HANDING)
        if situation not in REMOTE or {first, second} & set(LOOKING)
    ]
