"""The responses of workers that look after attempts which another process executes, compared with what was stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.explorer.answers import Observation

Complaints = Iterator[str]

REMOTE = ("described", "remote", "remote_flagged", "expired_remote", "expiring_remote")
LOOKING = ("look_after", "note_late", "over")
_ENDED = ("resting", "succeeded", "lost")
_WRITES_NOTHING = ("over", "renew")
_ENDS_NOTHING = ("look_after", "note_late", "over", "renew", "cancel")


def check_looked_after(seen: Observation) -> Complaints:
    """One worker at a time looks at an attempt, and only once a job has it."""
    found = seen.answer.value
    if [one.ref for one in found] not in ([], [seen.case.held().ref]):
        yield f"it was given {found}"
    if len(seen.case.lookers) > 1 and seen.case.situation != "expiring_remote":
        yield "two workers looked after an attempt at once"
    if found and seen.case.situation == "described" and seen.partner != "take_over":
        yield "it looked after an attempt that no job has taken over"
    if not found and seen.case.situation == "remote" and seen.partner in _WRITES_NOTHING and not seen.answer.doubted:
        yield "it did not find an attempt that a job executes"
    if found:
        yield from _known(seen, "looked_at")


def check_noted(seen: Observation) -> Complaints:
    """Lines are copied once, by whichever worker; what the response says is what is stored."""
    mine, others = _lines(seen, seen.who), _lines(seen, 1 - seen.who)
    if seen.answer.value and not mine:
        yield "the response says that its line was copied, but the line does not exist"
    if mine and not seen.answer.value and not seen.answer.doubted:
        yield "the response says that its line was not copied, but the line exists"
    if mine + others > 1:
        yield f"the same part of a log was copied {mine + others} times"
    if seen.answer.value:
        yield from _known(seen, "log_copied", f"noted_by_{seen.who}")


def _known(seen: Observation, *added: str) -> Complaints:
    """The attempt ended with what was added to its details, and with what was there."""
    attempt = seen.run.attempt(seen.case.held().number)
    holders = (seen.case.holder, *seen.case.claimers) if seen.partner == "take_over" else (seen.case.holder,)
    if attempt is not None and attempt.worker_id in holders:
        details = attempt.details or {}
        if missing := [name for name in ("ray_submission_id", "ray_address", *added) if name not in details]:
            yield f"the attempt has {details}, without {missing}"


def _lines(seen: Observation, who: int) -> int:
    return sum(note.what == f"copied by {who}" for note in seen.run.notes)


def check_over(seen: Observation) -> Complaints:
    """An attempt is over when its lease is gone, and never before: its job is stopped."""
    over = seen.case.held().ref in seen.answer.value
    if not over and seen.case.situation in _ENDED:
        yield "an attempt that had ended is not called over"
    if over and seen.case.situation not in _ENDED and seen.partner in _ENDS_NOTHING:
        yield "an attempt that still has its lease is called over"
