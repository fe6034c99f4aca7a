"""What a client can ask about subscriptions: who hears that runs ended, and what became of each delivery."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.domain.errors import BadInput, Problem
from holdfast.domain.ids import new_id
from holdfast.domain.records import DeliveryRecord, SubscriptionRecord
from holdfast.domain.states import FINAL
from holdfast.ops import outbox
from holdfast.outbox.addresses import endpoint_of
from holdfast.outbox.signing import check_secret, new_secret
from holdfast.runtime.settings import Settings
from holdfast.sql.statement import Op
from holdfast.sql.subscriptions import NewSubscription, SubscriptionState

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DELIVERY_STATUSES = ("PENDING", "DELIVERED", "FAILED")


def subscriptions(settings: Settings, /) -> Op[list[SubscriptionState]]:
    """Every subscription, and how many deliveries it waits for."""
    return outbox.list_subscriptions()


def add_subscription(
    settings: Settings,
    /,
    name: str,
    *,
    webhook: str | None = None,
    stream: str | None = None,
    secret: str | None = None,
    models: Iterable[str] = (),
    queues: Iterable[str] = (),
    statuses: Iterable[str] = (),
) -> Op[SubscriptionRecord]:
    """Hear of runs that end from now on: through a webhook, or through a Redis stream of this name.

    A webhook without a `secret` gets one; the answer holds it. Models, queues and statuses narrow down what is heard.
    """
    if not NAME.fullmatch(name):
        raise _bad("/name", "must be 1 to 64 letters, digits, dots, dashes and underscores")
    if (webhook is None) == (stream is None):
        raise _bad("/target", "must be either a webhook or a stream")
    wanted = {"model": list(models), "queue": list(queues), "status": _statuses(statuses)}
    wanted = {field: values for field, values in wanted.items() if values}
    if webhook is not None:
        endpoint_of(webhook, allow_private=settings.webhook_allow_private)
        key = check_secret(secret) if secret is not None else new_secret()
        return outbox.add_subscription(NewSubscription(new_id(), name, "webhook", webhook, key, wanted))
    if secret is not None:
        raise _bad("/secret", "is for webhooks; a stream has none")
    if not stream or len(stream) > 255 or not stream.isprintable():
        raise _bad("/target", "must be a name of 1 to 255 printable characters")
    return outbox.add_subscription(NewSubscription(new_id(), name, "redis", stream, None, wanted))


def remove_subscription(settings: Settings, /, name: str) -> Op[None]:
    """Unsubscribe; what was not delivered is forgotten."""
    return outbox.remove_subscription(name)


def pause_subscription(settings: Settings, /, name: str, *, reason: str | None = None) -> Op[None]:
    """Deliver nothing more for now; events are collected."""
    return outbox.pause_subscription(name, reason or "paused by a person")


def resume_subscription(settings: Settings, /, name: str) -> Op[None]:
    """Deliver what was collected, and what comes."""
    return outbox.resume_subscription(name)


def rotate_secret(settings: Settings, /, name: str) -> Op[str]:
    """Sign with a new secret, which is returned, and until the next rotation with the one before as well."""
    secret = new_secret()
    yield from outbox.rotate_secret(name, secret)
    return secret


def deliveries(
    settings: Settings,
    /,
    subscription: str | None = None,
    *,
    status: str | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> Op[list[DeliveryRecord]]:
    """The delivery log, newest first; `before` is the number of the last delivery of the page before."""
    limit = settings.page if limit is None else limit
    if status is not None and status not in DELIVERY_STATUSES:
        raise _bad("/status", f"must be one of {', '.join(DELIVERY_STATUSES)}")
    if not 1 <= limit <= settings.max_page:
        raise _bad("/limit", f"must be from 1 to {settings.max_page}")
    return outbox.list_deliveries(subscription, status, before, limit)


def redeliver(settings: Settings, /, delivery: int) -> Op[None]:
    """Deliver once more, under the same event id."""
    return outbox.redeliver(delivery)


def _statuses(given: Iterable[str]) -> list[str]:
    found = [status.upper() for status in given]
    if any(status not in FINAL for status in found):
        raise _bad("/statuses", f"must be among {', '.join(sorted(FINAL))}")
    return found


def _bad(pointer: str, detail: str) -> BadInput:
    return BadInput(f"{pointer}: {detail}", [Problem(pointer, detail)])
