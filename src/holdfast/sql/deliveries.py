"""Deliveries: one event for one subscription. They are sent in order, by the publisher that holds the subscription.

Sending happens outside any transaction. The result is stored only if the same publisher still holds the subscription:
if its hold has expired, the write is rejected, and another publisher sends the event again with the same id.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from holdfast.domain.records import DeliveryRecord
from holdfast.sql.statement import Statement, count, each, first, plain_array

_MINE = """
    exists (select from holdfast.publishing
            where publishing.subscription_id = deliveries.subscription_id
              and publishing.holder = %(holder)s::uuid)
"""
# The end of a statement that records a failed attempt.
_FAILED_TRY = (
    """
            tried_at = holdfast.now(), attempts = attempts + 1, seconds = %(seconds)s, response_code = %(code)s,
            error = %(error)s
        where id = %(id)s and status = 'PENDING' and """
    + _MINE
    + " returning id"
)


class Held(NamedTuple):
    """A subscription that a publisher holds."""

    id: str
    name: str
    kind: str
    target: str
    secret: str | None


# Subscriptions whose next delivery, `head`, is due and that no publisher holds.
DUE = """
            from holdfast.subscriptions
            cross join lateral (select deliveries.due_at from holdfast.deliveries
                                where deliveries.subscription_id = subscriptions.id and deliveries.status = 'PENDING'
                                order by deliveries.id limit 1) as head
            where subscriptions.paused_at is null and head.due_at <= holdfast.now()
              and not exists (select from holdfast.publishing
                              where publishing.subscription_id = subscriptions.id
                                and publishing.held_until > holdfast.now())
"""


def hold(holder: str, seconds: float) -> Statement[Held | None]:
    """Hold a subscription whose next delivery is due and that no other publisher holds."""
    return Statement(
        """
        with due as (
            select subscriptions.id"""
        + DUE
        + """
            order by head.due_at limit 1
        ), held as (
            insert into holdfast.publishing (subscription_id, holder, held_until)
            select due.id, %(holder)s::uuid, holdfast.now() + %(seconds)s * interval '1 second' from due
            on conflict (subscription_id) do update set holder = excluded.holder, held_until = excluded.held_until
            where publishing.held_until <= holdfast.now()
            returning subscription_id
        )
        select subscriptions.id::text, subscriptions.name, subscriptions.kind, subscriptions.target,
               subscriptions.secret
        from held join holdfast.subscriptions on subscriptions.id = held.subscription_id
        """,
        {"holder": holder, "seconds": seconds},
        first(Held._make),
    )


def release(holder: str, subscription_id: str) -> Statement[int]:
    return Statement(
        """
        delete from holdfast.publishing
        where subscription_id = %(subscription_id)s::uuid and holder = %(holder)s::uuid
        returning subscription_id
        """,
        {"holder": holder, "subscription_id": subscription_id},
        len,
    )


class Delivery(NamedTuple):
    """An event to be sent to a subscriber."""

    id: int
    run_id: str
    number: int
    type: str
    at: datetime
    attempts: int
    data: dict[str, Any]

    @property
    def event_id(self) -> str:
        """The same for every subscription and every attempt, so that receivers can recognize duplicates."""
        return f"evt_{self.run_id}_{self.number}"


def next_of(subscription_id: str, limit: int) -> Statement[list[Delivery]]:
    """Return the oldest pending deliveries, up to the first that is not due yet."""
    return Statement(
        """
        select id, run_id::text, number, type, created_at, attempts, event::text from (
            select deliveries.*, bool_and(due_at <= holdfast.now()) over (order by id) as in_time
            from (select * from holdfast.deliveries
                  where subscription_id = %(subscription_id)s::uuid and status = 'PENDING'
                  order by id limit %(limit)s) as deliveries) as head
        where in_time order by id
        """,
        {"subscription_id": subscription_id, "limit": limit},
        each(lambda row: Delivery._make((*row[:6], orjson.loads(row[6])))),
    )


class Try(NamedTuple):
    """One attempt to deliver: its duration, the response code, and the error, if any."""

    seconds: float = 0.0
    code: int | None = None
    error: str | None = None


def delivered(holder: str, ids: Sequence[int], tried: Try, *, keep: bool, hold_seconds: float) -> Statement[int]:
    """Record that these were delivered, and extend the hold. They are deleted unless `keep` is set."""
    end = (
        """
        update holdfast.deliveries
        set status = 'DELIVERED', ended_at = holdfast.now(), tried_at = holdfast.now(), attempts = attempts + 1,
            seconds = %(seconds)s, response_code = %(code)s, error = null
        """
        if keep
        else "delete from holdfast.deliveries"
    )
    return Statement(
        "with done as ("
        + end
        + " where id = any(%(ids)s::bigint[]) and status = 'PENDING' and "
        + _MINE
        + """ returning subscription_id
        ), prolonged as (
            update holdfast.publishing set held_until = holdfast.now() + %(hold_seconds)s * interval '1 second'
            where holder = %(holder)s::uuid and subscription_id in (select subscription_id from done)
        )
        select count(*) from done
        """,
        {"holder": holder, "ids": plain_array(ids), "hold_seconds": hold_seconds, **tried._asdict()},
        count,
    )


def put_off(holder: str, id_: int, tried: Try, delay: float) -> Statement[int]:
    """Record a failed attempt; try again after `delay` seconds. Later deliveries wait for this one."""
    return Statement(
        """
        update holdfast.deliveries set due_at = holdfast.now() + %(delay)s * interval '1 second', """
        + _FAILED_TRY,
        {"holder": holder, "id": id_, "delay": delay, **tried._asdict()},
        len,
        together=True,
    )


def give_up(holder: str, id_: int, tried: Try) -> Statement[int]:
    """Record that this delivery failed permanently."""
    return Statement(
        """
        update holdfast.deliveries set status = 'FAILED', ended_at = holdfast.now(), """
        + _FAILED_TRY,
        {"holder": holder, "id": id_, **tried._asdict()},
        len,
        together=True,
    )


def redeliver(id_: int) -> Statement[int]:
    """Deliver this once more, before all newer deliveries."""
    return Statement(
        """
        update holdfast.deliveries
        set status = 'PENDING', ended_at = null, due_at = holdfast.now(), attempts = 0
        where id = %(id)s
        returning id
        """,
        {"id": id_},
        len,
    )


def log(
    subscription: str | None, status: str | None, before: int | None, limit: int
) -> Statement[list[DeliveryRecord]]:
    """Return deliveries, newest first."""
    return Statement(
        """
        select deliveries.id, subscriptions.name, 'evt_' || deliveries.run_id || '_' || deliveries.number,
               deliveries.type, deliveries.run_id::text, deliveries.status, deliveries.attempts,
               deliveries.response_code, deliveries.seconds, deliveries.error, deliveries.created_at,
               deliveries.due_at, deliveries.tried_at, deliveries.ended_at
        from holdfast.deliveries join holdfast.subscriptions on subscriptions.id = deliveries.subscription_id
        where coalesce(subscriptions.name = %(subscription)s, %(subscription)s::text is null)
          and coalesce(deliveries.status = %(status)s, %(status)s::text is null)
          and coalesce(deliveries.id < %(before)s, %(before)s::bigint is null)
        order by deliveries.id desc limit %(limit)s
        """,
        {"subscription": subscription, "status": status, "before": before, "limit": limit},
        each(DeliveryRecord._make),
    )


def forget(older_than_days: float, limit: int = 1000) -> Statement[int]:
    """Delete deliveries past their retention, including those of paused subscriptions."""
    return Statement(
        """
        with gone as (
            delete from holdfast.deliveries where id = any(array(
                select id from holdfast.deliveries
                where created_at < holdfast.now() - %(days)s * interval '1 day' order by created_at limit %(limit)s))
            returning id
        )
        select count(*) from gone
        """,
        {"days": older_than_days, "limit": limit},
        count,
    )
