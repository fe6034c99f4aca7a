"""Subscriptions: webhooks and streams that receive an event when a run ends, and their deliveries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from holdfast.domain.errors import Problem, refused
from holdfast.domain.ids import new_id
from holdfast.domain.records import DeliveryRecord, SubscriptionRecord
from holdfast.domain.states import FINAL
from holdfast.ops import outbox
from holdfast.outbox.addresses import endpoint_of
from holdfast.outbox.envelope import check_secret, new_secret
from holdfast.sql.subscriptions import NewSubscription, SubscriptionState
from holdfast.verbs.caller import Caller
from holdfast.verbs.verb import MakeOp, verb

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
COMMITTED = "deliveries depend on committed data and would wait for your transaction"
UNSEEN = "the secret would be returned before it is committed, and a rollback would make it invalid"
DELIVERY_STATUSES = ("PENDING", "DELIVERED", "FAILED")


@verb()
def subscriptions(caller: Caller, /) -> MakeOp[list[SubscriptionState]]:
    """Return every subscription, and how many of its deliveries are pending."""
    return outbox.list_subscriptions


@verb(repeatable=False, refused_in_transaction=UNSEEN)
def add_subscription(
    caller: Caller,
    /,
    name: str,
    *,
    webhook: str | None = None,
    stream: str | None = None,
    secret: str | None = None,
    models: Iterable[str] = (),
    queues: Iterable[str] = (),
    statuses: Iterable[str] = (),
) -> MakeOp[SubscriptionRecord]:
    """Send an event for each run that ends from now on, to a webhook or to a Redis stream.

    For a webhook without a `secret`, one is generated and returned. Models, queues and statuses restrict what is sent.
    """
    if not NAME.fullmatch(name):
        raise refused(Problem("/name", "must be 1 to 64 letters, digits, dots, dashes and underscores"))
    if (webhook is None) == (stream is None):
        raise refused(Problem("/target", "must be either a webhook or a stream"))
    wanted = {"model": list(models), "queue": list(queues), "status": _statuses(statuses)}
    wanted = {field: values for field, values in wanted.items() if values}
    if webhook is not None:
        endpoint_of(webhook, allow_private=caller.settings.webhook_allow_private)
        key = check_secret(secret) if secret is not None else new_secret()
        return partial(outbox.add_subscription, NewSubscription(new_id(), name, "webhook", webhook, key, wanted))
    if secret is not None:
        raise refused(Problem("/secret", "is only for webhooks"))
    if not stream or len(stream) > 255 or not stream.isprintable():
        raise refused(Problem("/target", "must be a name of 1 to 255 printable characters"))
    return partial(outbox.add_subscription, NewSubscription(new_id(), name, "redis", stream, None, wanted))


@verb(refused_in_transaction=COMMITTED)
def remove_subscription(caller: Caller, /, name: str) -> MakeOp[None]:
    """Remove a subscription; undelivered events are dropped."""
    return partial(outbox.remove_subscription, name)


@verb(refused_in_transaction=COMMITTED)
def pause_subscription(caller: Caller, /, name: str, *, reason: str | None = None) -> MakeOp[None]:
    """Pause deliveries; events are kept."""
    return partial(outbox.pause_subscription, name, reason or "paused by a user")


@verb(refused_in_transaction=COMMITTED)
def resume_subscription(caller: Caller, /, name: str) -> MakeOp[None]:
    """Resume deliveries, including those of events that were kept."""
    return partial(outbox.resume_subscription, name)


@verb(repeatable=False, refused_in_transaction=UNSEEN)
def rotate_secret(caller: Caller, /, name: str) -> MakeOp[str]:
    """Create and return a new secret. Events are also signed with the old one until the next rotation."""
    return partial(outbox.rotate_secret, name, new_secret())


@verb()
def deliveries(
    caller: Caller,
    /,
    subscription: str | None = None,
    *,
    status: str | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> MakeOp[list[DeliveryRecord]]:
    """Return the delivery log, newest first; `before` is the number of the last delivery of the previous page."""
    limit = caller.settings.page if limit is None else limit
    if status is not None and status not in DELIVERY_STATUSES:
        raise refused(Problem("/status", f"must be one of {', '.join(DELIVERY_STATUSES)}"))
    if not 1 <= limit <= caller.settings.max_page:
        raise refused(Problem("/limit", f"must be from 1 to {caller.settings.max_page}"))
    return partial(outbox.list_deliveries, subscription, status, before, limit)


@verb(refused_in_transaction=COMMITTED)
def redeliver(caller: Caller, /, delivery: int) -> MakeOp[None]:
    """Deliver an event again, with the same event id."""
    return partial(outbox.redeliver, delivery)


def _statuses(given: Iterable[str]) -> list[str]:
    found = [status.upper() for status in given]
    if any(status not in FINAL for status in found):
        raise refused(Problem("/statuses", f"must be among {', '.join(sorted(FINAL))}"))
    return found
