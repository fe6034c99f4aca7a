"""Why a run waits, why an attempt ended, and what a worker may request from an attempt that it holds.

The codes are stored in `waiting.reason` and `attempts.reason` and appear in events, in log lines and in what `why`
returns. A reason that a person gave, such as the reason of a cancel, is stored as its own text instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.domain.times import written


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


Fields = Mapping[str, Any]


# The sentences of reasons that need nothing but their fields.
_SENTENCES = {
    ReasonCode.STOPPING: "cancellation was requested at {requested_at}: {reason}",
    ReasonCode.RETRY: "waiting for the next attempt at {due_at}",
    ReasonCode.POSTPONED: "postponed until {due_at}",
    ReasonCode.SCHEDULED: "scheduled to start at {due_at}",
    ReasonCode.NO_WORKER: "no worker is alive; start one with: holdfast worker",
    ReasonCode.NO_WORKER_FOR_TASK: "no live worker of queue {queue} has the task {task} registered",
    ReasonCode.NO_WORKER_FOR_EXECUTOR: "task {task} needs the executor {executor}, and no live worker of queue {queue} "
    "has it; start one with: holdfast worker --executor {executor}",
    ReasonCode.EXECUTOR_AWAY: "the workers that could claim this run cannot use their cluster: {why}",
    ReasonCode.BUSY: "all slots of the workers that could claim this run are busy",
    ReasonCode.NEXT: "ready; a worker will claim it at the next poll",
}


def describe(code: str, fields: Fields) -> str | None:
    """Return the sentence for a reason, or None if this version does not know the code."""
    shown = {name: written(value) if isinstance(value, datetime) else value for name, value in fields.items()}
    match code:
        case "running":
            until = f", lease until {shown['lease_expires_at']}" if shown.get("lease_expires_at") else ""
            return f"attempt {fields['attempt']} is running on worker {fields['worker_id']}{until}"
        case "ended":
            detail = f": {fields['detail']}" if fields.get("detail") else ""
            return f"the run ended {fields['status']}{detail}"
        case "dependencies":
            return _dependencies(fields)
        case "paused":
            reason = f" ({fields['reason']})" if fields.get("reason") else ""
            return f"queue {fields['queue']} was paused by {fields['paused_by']} at {shown['paused_at']}{reason}"
        case "no-worker-for-queue":
            count = fields["workers"]
            who = "the only live worker does not serve" if count == 1 else f"none of the {count} live workers serves"
            return f"{who} queue {fields['queue']}"
        case "behind":
            if fields["ahead"] == 1 and not fields["or_more"]:
                return f"1 ready run in queue {fields['queue']} is ahead of this one"
            amount = f"{fields['ahead']}{' or more' if fields['or_more'] else ''}"
            return f"{amount} ready runs in queue {fields['queue']} are ahead of this one"
        case _ if code in _SENTENCES:
            return _SENTENCES[ReasonCode(code)].format(**shown)
        case _:
            return f"waiting until {shown['due_at']}" if "due_at" in fields else None


def _dependencies(fields: Fields) -> str:
    count, named = fields["count"], fields["waits_for"]
    listed = ", ".join(f"{one['id']} ({one['what']}, {one['status']})" for one in named)
    more = ", ..." if count > len(named) else ""
    return f"waiting for {count} dependenc{'ies' if count != 1 else 'y'} to end: {listed}{more}"
