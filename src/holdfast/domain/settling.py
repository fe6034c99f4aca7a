"""Settling: what the end of an attempt means for its run. Pure functions, without a clock or randomness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import orjson

from holdfast.domain.errors import HoldfastError
from holdfast.domain.policies import Retry
from holdfast.domain.reasons import LeaseRequest, ReasonCode
from holdfast.domain.states import AttemptStatus, Status
from holdfast.domain.values import AttemptRef, Claim, NewRun, Settlement, StoredResult


class Succeeded(NamedTuple):
    """User code returned; the result is text or stored elsewhere. The runs in `adds` are created with the success."""

    result: str | None = None
    stored: StoredResult | None = None
    elapsed: float = 0.0
    adds: tuple[NewRun, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """User code raised, exceeded its time limit, or ended its process (`reason` is then timeout or crash).

    It is `lost` if the machine or process that executed it is gone, such as a node of a cluster: the code may or may
    not be at fault, and may even have finished.
    """

    error: dict[str, Any]
    retryable: bool = True
    reason: ReasonCode | None = None
    exit_code: int | None = None
    elapsed: float | None = 0.0
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """User code stopped because the run was cancelled."""

    elapsed: float = 0.0


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The worker handed back the unfinished run, or its task postponed it; this does not use up an attempt."""

    elapsed: float | None = None
    reason: ReasonCode = ReasonCode.HANDED_BACK
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The run was claimed but never begun: it returns to its position in the queue, and no attempt is recorded."""

    elapsed: float = 0.0


Outcome = Succeeded | Failed | Stopped | HandedBack | NotBegun


def stopped_by(request: LeaseRequest, elapsed: float, exit_code: int | None = None) -> Outcome:
    """Return the outcome of an attempt that stopped, or was killed, because of a request."""
    match request.reason:
        case ReasonCode.TIMEOUT:
            error = {"class": "RunTimedOut", "message": request.message, "traceback": None}
            return Failed(error, reason=request.reason, exit_code=exit_code, elapsed=elapsed)
        case ReasonCode.HANDED_BACK:
            return HandedBack(elapsed)
        case _:
            return Stopped(elapsed)


@lru_cache(maxsize=1024)
def _policy(text: str) -> tuple[Retry, float | None] | None:
    """Return a stored policy and time limit; None if this version cannot read them."""
    try:
        stored = orjson.loads(text)
        timeout = stored.get("timeout")
        if timeout is not None and not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
            return None
        return Retry.from_json(stored), timeout
    except (ArithmeticError, AttributeError, TypeError, ValueError, HoldfastError):
        return None


def is_readable(text: str | None) -> bool:
    """Whether this version can read a stored policy. If not, the default policy applies, without a time limit."""
    return text is None or _policy(text) is not None


def policy_of(text: str | None) -> Retry:
    """Return the retry policy that was stored with a run."""
    stored = _policy(text) if text else None
    return stored[0] if stored else Retry()


def timeout_of(text: str | None) -> float | None:
    """Return the time limit in seconds that was stored with a run."""
    stored = _policy(text) if text else None
    return stored[1] if stored else None


def settle(claim: Claim, outcome: Outcome, random: float) -> Settlement:
    """Return what this end of an attempt means. `random` in [0, 1) spreads out retries."""
    lag = claim.lag if claim.number == 1 else None
    if isinstance(outcome, Succeeded):
        # Built directly as tuples, because this is done for every run: it takes a third of the time.
        ref = tuple.__new__(AttemptRef, (claim.run_id, claim.number))
        result, stored, took, adds = outcome
        ended = (ref, AttemptStatus.SUCCEEDED, Status.SUCCEEDED, claim.task, took, lag)
        return tuple.__new__(Settlement, (*ended, 0.0, False, result, stored, None, None, None, None, adds, True, None))
    cancelled = partial(Settlement, claim.ref, AttemptStatus.CANCELLED, task=claim.task)
    match outcome:
        case Stopped(elapsed):
            return cancelled(outcome=Status.CANCELLED, elapsed=elapsed, lag=lag, reason=ReasonCode.CANCELLED)
        case HandedBack(elapsed, reason, delay):
            return cancelled(outcome=None, elapsed=elapsed, lag=lag, delay=delay, excuse=True, reason=reason)
        case NotBegun():
            reason = ReasonCode.HANDED_BACK
            return cancelled(outcome=None, excuse=True, reason=reason, begun=False, rank_at=claim.rank_at)
        case Failed():
            ends, delay = after_failure(
                policy_of(claim.policy),
                spent=claim.spent,
                crashes=claim.crashes if outcome.reason == ReasonCode.CRASH else None,
                random=random,
            )
            if not outcome.retryable:
                ends = Status.FAILED
            return Settlement(
                claim.ref,
                AttemptStatus.LOST if outcome.lost else AttemptStatus.FAILED,
                ends,
                task=claim.task,
                elapsed=outcome.elapsed,
                lag=lag,
                delay=delay,
                reason=outcome.reason,
                error=outcome.error,
                exit_code=outcome.exit_code,
            )


def after_failure(policy: Retry, *, spent: int, crashes: int | None, random: float) -> tuple[Status | None, float]:
    """Return how a run continues after a failed attempt: its final status or None, and the delay before the next one.

    `crashes` is the number of earlier crashes of the run, or None if this was not one: the first is retried at once.
    """
    if spent >= policy.max_attempts:
        return Status.FAILED, 0.0
    if crashes == 0:
        return None, 0.0
    return None, policy.delay(spent, random).total_seconds()
