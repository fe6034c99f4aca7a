"""The resources of a job, and subscriptions to its runs."""

from __future__ import annotations

from typing import Any

from holdfast import ops
from holdfast.domain.ids import new_id
from holdfast.ops import outbox
from holdfast.sql.deliveries import Try
from holdfast.sql.statement import Op, Statement, plain_array
from tests.explore.jobs_cases import Case, resource_named
from tests.explore.jobs_programs import Part, repeated
from tests.explorer.actor import Do, Program

HOLD_SECONDS = 60.0


def _standing(case: Case, *statuses: str) -> Statement[set[str]]:
    """The runs of the job that have one of these statuses."""
    return Statement(
        "select id::text from holdfast.run_status where id = any(%(ids)s::uuid[]) and status = any(%(statuses)s)",
        {"ids": plain_array(case.ids.values()), "statuses": list(statuses)},
        lambda found: {row[0] for row in found},
    )


# Subscriptions.


def _subscribe(case: Case, who: int) -> Program:
    """Record which runs had ended before, and which were still open once the subscription was acknowledged."""
    case.ended_then = yield Do(lambda: iter(_standing(case, "SUCCEEDED", "FAILED", "CANCELLED")))
    made = yield Do(lambda: outbox.add_subscription(case.new_subscription()))
    case.open_then = yield Do(lambda: iter(_standing(case, "PENDING", "RUNNING")))
    return made


def _publish(case: Case, who: int) -> Program:
    """Hold the subscription, deliver what is due, and release it."""
    holder = new_id()
    found = yield Do(lambda: outbox.hold(holder, HOLD_SECONDS, 10), True)
    if found is None:
        return None
    held, deliveries = found
    if case.holding:
        case.complaints.append(f"{who} was given a subscription that {case.holding} held")
    case.holding.add(who)
    ids = [delivery.id for delivery in deliveries]
    kept = yield Do(lambda: outbox.delivered(holder, ids, Try(), keep=True, hold_seconds=HOLD_SECONDS))
    yield Do(lambda: outbox.release(holder, held.id))
    case.holding.discard(who)
    return kept


# Resources.


def _add_resource(case: Case, who: int) -> Op[Any]:
    return ops.add_resource(case.job_id, resource_named(f"table {who}"), False)


def _remove(case: Case, who: int) -> Program:
    for resource in (yield Do(ops.resources_to_remove, True)):
        if resource.job_id == case.job_id:
            if resource.name in case.removed:
                case.complaints.append(f"{who} was given a resource that another actor was removing")
            case.removed.append(resource.name)
            if not (yield Do(lambda: ops.get_job(case.job_id))).status.final:
                case.complaints.append(f"{who} was given a resource of a job that had not ended")
        yield Do(lambda resource=resource: ops.resource_removed(resource))  # type: ignore[misc]


SIDES: dict[str, Part] = {
    "subscribe": Part(_subscribe, None, "subscribe"),
    "unsubscribe": repeated("unsubscribe", lambda case, who: outbox.remove_subscription(case.subscription), begin=True),
    "pause": repeated("pause", lambda case, who: outbox.pause_subscription(case.subscription, "later"), begin=True),
    "resume": repeated("pause", lambda case, who: outbox.resume_subscription(case.subscription), begin=True),
    "fan_out": repeated("fan_out", lambda case, who: outbox.fan_out(), begin=True),
    "publish": Part(_publish, None, "publish"),
    "add_resource": repeated("add_resource", _add_resource),
    "remove": Part(_remove, _remove, "remove"),
}
