"""Publishing: committed events become deliveries, which are sent in order and at least once.

Events are sent between these operations, outside any transaction. If a publisher dies after sending and before it has
recorded that, the delivery is still pending, and another publisher sends it again with the same event id.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.errors import ConfigurationError, SubscriptionExists, SubscriptionNotFound, SubscriptionNotReady
from holdfast.domain.records import SubscriptionRecord
from holdfast.sql import deliveries, outbox, subscriptions
from holdfast.sql.deliveries import Delivery, Held, Try
from holdfast.sql.statement import Op, as_operation
from holdfast.sql.subscriptions import NewSubscription

# How many times to check, after a short wait each, whether transactions that may not see a new subscription have ended.
CHECKS = 500

FANNED_OUT_AT_ONCE = outbox.AT_ONCE
fan_out = as_operation(outbox.fan_out)
list_subscriptions = as_operation(subscriptions.listing)
list_deliveries = as_operation(deliveries.log)
forget_deliveries = as_operation(deliveries.forget)
release = as_operation(deliveries.release)


def hold(holder: str, seconds: float, limit: int) -> Op[tuple[Held, list[Delivery]] | None]:
    """Hold a subscription with due deliveries. Return it with those deliveries, oldest first."""
    held = yield from deliveries.hold(holder, seconds)
    if held is None:
        return None
    return held, (yield from deliveries.next_of(held.id, limit))


def delivered(holder: str, ids: Sequence[int], tried: Try, *, keep: bool, hold_seconds: float) -> Op[bool]:
    """Record that these were delivered. Return False if the hold was lost: then send nothing more."""
    count = yield from deliveries.delivered(holder, ids, tried, keep=keep, hold_seconds=hold_seconds)
    return count == len(ids)


def put_off(holder: str, delivery: Delivery, tried: Try, delay: float) -> Op[bool]:
    """Record a failed attempt. This delivery, and all after it, wait for `delay` seconds."""
    return bool((yield from deliveries.put_off(holder, delivery.id, tried, delay)))


def give_up(holder: str, held: Held, delivery: Delivery, tried: Try, reason: str) -> Op[bool]:
    """Record that this delivery failed permanently. The subscription is paused until an operator resumes it."""
    if not (yield from deliveries.give_up(holder, delivery.id, tried)):
        return False
    yield from subscriptions.pause(held.name, reason)
    return True


def pause_undelivered(holder: str, held: Held, delivery: Delivery, tried: Try, reason: str) -> Op[bool]:
    """Pause a subscription whose receiver accepts no more events. The delivery stays pending."""
    if not (yield from deliveries.put_off(holder, delivery.id, tried, 0.0)):
        return False
    yield from subscriptions.pause(held.name, reason)
    return True


def add_subscription(new: NewSubscription) -> Op[SubscriptionRecord]:
    """Add a subscription to the ends of runs that are committed from now on.

    An open transaction that ended a run before it could see the subscription writes no event. So the subscription is
    committed first, and this returns once those transactions have ended; nothing else waits for them.
    """
    made = yield from subscriptions.add(new)
    if made is None:
        raise SubscriptionExists(f"a subscription named {new.name!r} already exists; remove it first")
    own, waited_for = yield from subscriptions.unaware()
    for _ in range(0 if own else CHECKS):
        if not waited_for:
            return made
        waited_for = yield from subscriptions.still_unaware(waited_for)
    yield from subscriptions.remove(new.name)
    if own:
        raise ConfigurationError(
            "a subscription cannot be added in your own transaction: runs that end before it commits would be "
            "missed. Add it on the client itself."
        )
    raise SubscriptionNotReady(
        f"subscription {new.name!r} was not added: a transaction that ended or reopened runs has been open for more "
        f"than {CHECKS * 0.02:.0f} seconds, and the subscription would miss those runs. Commit it, or try again later."
    )


def remove_subscription(name: str) -> Op[None]:
    """Delete a subscription and its pending deliveries."""
    _found(name, (yield from subscriptions.remove(name)))


def pause_subscription(name: str, reason: str) -> Op[None]:
    _found(name, (yield from subscriptions.pause(name, reason)))


def resume_subscription(name: str) -> Op[None]:
    _found(name, (yield from subscriptions.resume(name)))


def rotate_secret(name: str, secret: str) -> Op[str]:
    """Sign with a new secret, and return it."""
    _found(name, (yield from subscriptions.rotate(name, secret)))
    return secret


def redeliver(delivery_id: int) -> Op[None]:
    """Send a delivery again, whether it was delivered or has failed."""
    if not (yield from deliveries.redeliver(delivery_id)):
        raise SubscriptionNotFound(
            f"no delivery has the number {delivery_id}; it may have been deleted after its retention period"
        )


def _found(name: str, count: int) -> None:
    if not count:
        raise SubscriptionNotFound(f"no subscription is named {name!r}")
