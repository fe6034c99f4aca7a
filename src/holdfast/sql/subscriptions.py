"""Subscriptions to the ends of runs. While there are none, no events are written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from holdfast.domain.records import SubscriptionRecord
from holdfast.sql.statement import Row, Statement, count, each, first, text_array

_COLUMNS = """
    subscriptions.id::text, subscriptions.name, subscriptions.kind, subscriptions.target, subscriptions.secret,
    subscriptions.filter::text, subscriptions.created_at, subscriptions.paused_at, subscriptions.pause_reason
"""


class NewSubscription(NamedTuple):
    """A subscription to be created. `filter` maps model, queue or status to the accepted values."""

    id: str
    name: str
    kind: str
    target: str
    secret: str | None
    filter: dict[str, list[str]]


def _subscription(row: Row) -> SubscriptionRecord:
    return SubscriptionRecord._make((*row[:5], orjson.loads(row[5]) if row[5] else {}, *row[6:]))


def add(new: NewSubscription) -> Statement[SubscriptionRecord | None]:
    """Insert a subscription. Return None if the name is taken."""
    return Statement(
        "insert into holdfast.subscriptions (id, name, kind, target, secret, filter, created_at)"
        " values (%(id)s::uuid, %(name)s, %(kind)s, %(target)s, %(secret)s, %(filter)s::json, holdfast.now())"
        " on conflict (name) do nothing returning " + _COLUMNS,
        new._asdict() | {"filter": orjson.dumps(new.filter).decode() if new.filter else None},
        first(_subscription),
    )


class Unaware(NamedTuple):
    """Transactions that may end runs without seeing a subscription; `own` if the subscription itself is uncommitted."""

    own: bool
    transactions: list[str]


# A transaction that ends a run takes this lock before it reads subscriptions, and holds it until it commits.
_ENDING = """
    relation = 'holdfast.attempts'::regclass and mode = 'RowExclusiveLock' and granted
    and pid is distinct from pg_backend_pid()
"""


def unaware() -> Statement[Unaware]:
    """Return the transactions that may have read subscriptions before the new one was committed."""
    return Statement(
        "select pg_current_xact_id_if_assigned() is not null,"
        " array(select distinct virtualtransaction from pg_locks where" + _ENDING + ")",
        {},
        lambda found: Unaware(*found[0]),
    )


def still_unaware(transactions: Sequence[str]) -> Statement[list[str]]:
    """Return the transactions that are still open after a short wait."""
    return Statement(
        """
        with moment as materialized (select pg_sleep(0.02))
        select distinct virtualtransaction from moment cross join lateral (
            select virtualtransaction from pg_locks
            where virtualtransaction = any(%(transactions)s::text[]) and"""
        + _ENDING
        + """ offset 0) as open_ones
        """,
        {"transactions": text_array(transactions)},
        each(lambda row: str(row[0])),
    )


def remove(name: str) -> Statement[int]:
    """Delete a subscription and its deliveries."""
    return Statement("delete from holdfast.subscriptions where name = %(name)s returning id", {"name": name}, len)


class SubscriptionState(NamedTuple):
    """A subscription and its pending deliveries."""

    subscription: SubscriptionRecord
    pending: int
    oldest_pending_at: datetime | None


def listing() -> Statement[list[SubscriptionState]]:
    return Statement(
        "select "
        + _COLUMNS
        + """, queued.amount, queued.oldest
        from holdfast.subscriptions
        cross join lateral (select count(*) as amount, min(deliveries.created_at) as oldest from holdfast.deliveries
                            where deliveries.subscription_id = subscriptions.id
                              and deliveries.status = 'PENDING') as queued
        order by subscriptions.name
        """,
        {},
        each(lambda row: SubscriptionState(_subscription(row[:9]), row[9], row[10])),
    )


def pause(name: str, reason: str) -> Statement[int]:
    """Stop delivering; events are still collected."""
    return Statement(
        """
        update holdfast.subscriptions
        set paused_at = coalesce(paused_at, holdfast.now()), pause_reason = coalesce(pause_reason, %(reason)s)
        where name = %(name)s
        returning id
        """,
        {"name": name, "reason": reason},
        len,
    )


def resume(name: str) -> Statement[int]:
    """Continue delivering, immediately."""
    return Statement(
        """
        with resumed as (
            update holdfast.subscriptions set paused_at = null, pause_reason = null where name = %(name)s returning id
        ), due as (
            update holdfast.deliveries set due_at = holdfast.now()
            from resumed where deliveries.subscription_id = resumed.id and deliveries.status = 'PENDING'
              and deliveries.due_at > holdfast.now()
        )
        select count(*) from resumed
        """,
        {"name": name},
        count,
    )


def rotate(name: str, secret: str) -> Statement[int]:
    """Sign with a new secret from now on, and also with the previous one, so that receivers can switch."""
    return Statement(
        """
        update holdfast.subscriptions
        set secret = concat_ws(' ', %(secret)s::text, split_part(secret, ' ', 1))
        where name = %(name)s and kind = 'webhook'
        returning id
        """,
        {"name": name, "secret": secret},
        len,
    )
