"""Publishing: one publisher at a time delivers for a subscription, while it holds it."""

from __future__ import annotations

import pytest

from holdfast.domain.ids import new_id
from holdfast.ops import outbox
from holdfast.ops.outbox import Delivery, Held, Try
from holdfast.sql import subscriptions
from holdfast.sql.subscriptions import NewSubscription
from tests.timeline import Timeline


def subscribe(timeline: Timeline, name: str = "all") -> None:
    new = NewSubscription(new_id(), name, "redis", "stream", None, {})
    assert timeline.ask(subscriptions.add(new)) is not None


def ended(timeline: Timeline) -> str:
    run, worker = timeline.submit(), timeline.worker("a")
    worker.succeeds(worker.claims(run))
    return run


def hold(timeline: Timeline, holder: str) -> tuple[Held, list[Delivery]] | None:
    return timeline.perform(lambda: outbox.hold(holder, 60.0, 10))


def holds(timeline: Timeline, holder: str) -> tuple[Held, list[Delivery]]:
    found = hold(timeline, holder)
    assert found is not None
    return found


def delivered(timeline: Timeline, holder: str, deliveries: list[Delivery]) -> bool:
    ids = [delivery.id for delivery in deliveries]
    return timeline.perform(lambda: outbox.delivered(holder, ids, Try(), keep=True, hold_seconds=60.0))


@pytest.mark.every_driver
def test_publisher_whose_hold_expired_changes_nothing(timeline: Timeline) -> None:
    slow, quick = new_id(), new_id()
    subscribe(timeline)
    run = ended(timeline)
    timeline.perform(outbox.fan_out)
    held, deliveries = holds(timeline, slow)
    assert [delivery.run_id for delivery in deliveries] == [run]
    assert hold(timeline, quick) is None
    timeline.later(seconds=61)
    assert holds(timeline, quick)[1] == deliveries
    assert not delivered(timeline, slow, deliveries)
    assert not timeline.perform(lambda: outbox.put_off(slow, deliveries[0], Try(), 600.0))
    assert not timeline.perform(lambda: outbox.release(slow, held.id))
    assert hold(timeline, slow) is None
    assert delivered(timeline, quick, deliveries)


@pytest.mark.every_driver
def test_paused_subscription_cannot_be_held(timeline: Timeline) -> None:
    subscribe(timeline)
    ended(timeline)
    timeline.perform(outbox.fan_out)
    timeline.perform(lambda: outbox.pause_subscription("all", "later"))
    assert hold(timeline, new_id()) is None
    timeline.perform(lambda: outbox.resume_subscription("all"))
    assert hold(timeline, new_id()) is not None


def test_failed_delivery_delays_later_deliveries(timeline: Timeline) -> None:
    holder = new_id()
    subscribe(timeline)
    first = ended(timeline)
    timeline.perform(outbox.fan_out)
    held, deliveries = holds(timeline, holder)
    assert timeline.perform(lambda: outbox.put_off(holder, deliveries[0], Try(error="no"), 600.0))
    timeline.perform(lambda: outbox.release(holder, held.id))
    second = ended(timeline)
    timeline.perform(outbox.fan_out)
    assert hold(timeline, holder) is None
    timeline.later(seconds=601)
    assert [delivery.run_id for delivery in holds(timeline, holder)[1]] == [first, second]


@pytest.mark.every_driver
def test_run_that_ended_before_a_subscription_is_not_delivered_to_it(timeline: Timeline) -> None:
    subscribe(timeline, "early")
    ended(timeline)
    timeline.later(seconds=1)
    subscribe(timeline, "late")
    timeline.perform(outbox.fan_out)
    pending = {state.subscription.name: state.pending for state in timeline.perform(outbox.list_subscriptions)}
    assert pending == {"early": 1, "late": 0}
