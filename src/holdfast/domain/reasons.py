"""Why a run waits, why an attempt ended, and what a worker may request from an attempt that it holds.

The codes are stored in `waiting.reason` and `attempts.reason` and appear in events, in log lines and in what `why`
returns. A reason that a person gave, such as the reason of a cancel, is stored as its own text instead.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ReasonCode(StrEnum):
    """The codes. A new one needs no migration, because the columns hold text."""

    # Why a run waits.
    SCHEDULED = "scheduled"
    RETRY = "retry"
    DEPENDENCIES = "dependencies"
    POSTPONED = "postponed"  # also why an attempt ended

    # Why an attempt ended, if not because the task returned or raised.
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    CRASH = "crash"
    LOST = "lost"
    HANDED_BACK = "handed-back"

    # Why a ready run is not claimed, and what state a run is in: only `why` returns these, and they are not stored.
    PAUSED = "paused"
    NO_WORKER = "no-worker"
    NO_WORKER_FOR_QUEUE = "no-worker-for-queue"
    NO_WORKER_FOR_TASK = "no-worker-for-task"
    NO_WORKER_FOR_EXECUTOR = "no-worker-for-executor"
    EXECUTOR_AWAY = "executor-away"
    BEHIND = "behind"
    BUSY = "busy"
    NEXT = "next"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class LeaseRequest(NamedTuple):
    """A request to end an attempt before its code does. The reason decides what that end means for the run.

    CANCELLED ends the run, TIMEOUT fails the attempt, and HANDED_BACK returns the run to its queue at no cost. An
    executor handles all requests alike: it asks the code to stop and, if it can, interrupts and then kills it.
    """

    reason: ReasonCode
    message: str


def out_of_time(limit: float) -> LeaseRequest:
    """The request that ends an attempt when its time limit, in seconds, has passed."""
    return LeaseRequest(ReasonCode.TIMEOUT, f"the run took longer than its timeout of {limit:g} s")


CANCEL = LeaseRequest(ReasonCode.CANCELLED, "cancelled")
HAND_BACK = LeaseRequest(ReasonCode.HANDED_BACK, "the worker stopped this run")
