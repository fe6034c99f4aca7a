"""The sentence for each reason that `why` returns: a reason is a code with fields, rendered where it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.times import written

Fields = Mapping[str, Any]


def describe(code: str, fields: Fields) -> str | None:
    """Return the sentence for a reason, or None if this version does not know the code."""
    match code:
        case "running":
            expires_at = fields.get("lease_expires_at")
            until = f", lease until {written(expires_at)}" if expires_at else ""
            return f"attempt {fields['attempt']} is running on worker {fields['worker_id']}{until}"
        case "stopping":
            return f"cancellation was requested at {written(fields['requested_at'])}: {fields['reason']}"
        case "ended":
            detail = f": {fields['detail']}" if fields.get("detail") else ""
            return f"the run ended {fields['status']}{detail}"
        case "dependencies":
            return _dependencies(fields)
        case "retry":
            return f"waiting for the next attempt at {written(fields['due_at'])}"
        case "postponed":
            return f"postponed until {written(fields['due_at'])}"
        case "scheduled":
            return f"scheduled to start at {written(fields['due_at'])}"
        case "paused":
            reason = f" ({fields['reason']})" if fields.get("reason") else ""
            return (
                f"queue {fields['queue']} was paused by {fields['paused_by']} at {written(fields['paused_at'])}{reason}"
            )
        case "no-worker":
            return "no worker is alive; start one with: holdfast worker"
        case "no-worker-for-queue":
            count = fields["workers"]
            who = "the only live worker does not serve" if count == 1 else f"none of the {count} live workers serves"
            return f"{who} queue {fields['queue']}"
        case "no-worker-for-task":
            return f"no live worker of queue {fields['queue']} has the task {fields['task']} registered"
        case "no-worker-for-executor":
            return (
                f"task {fields['task']} needs the executor {fields['executor']}, and no live worker of queue "
                f"{fields['queue']} has it; start one with: holdfast worker --executor {fields['executor']}"
            )
        case "executor-away":
            return f"the workers that could claim this run cannot use their cluster: {fields['why']}"
        case "behind":
            if fields["ahead"] == 1 and not fields["or_more"]:
                return f"1 ready run in queue {fields['queue']} is ahead of this one"
            amount = f"{fields['ahead']}{' or more' if fields['or_more'] else ''}"
            return f"{amount} ready runs in queue {fields['queue']} are ahead of this one"
        case "busy":
            return "all slots of the workers that could claim this run are busy"
        case "next":
            return "ready; a worker will claim it at the next poll"
        case _:
            return f"waiting until {written(fields['due_at'])}" if "due_at" in fields else None


def _dependencies(fields: Fields) -> str:
    count, named = fields["count"], fields["waits_for"]
    listed = ", ".join(f"{one['id']} ({one['what']}, {one['status']})" for one in named)
    more = ", ..." if count > len(named) else ""
    return f"waiting for {count} dependenc{'ies' if count != 1 else 'y'} to end: {listed}{more}"
