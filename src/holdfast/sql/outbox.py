"""The outbox: events committed together with the changes they report, until they become deliveries."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.sql.statement import Statement, count

# The advisory lock that a fan-out holds until its transaction ends, so that deliveries are numbered in one order.
_ORDER = 7_226_311_053
AT_ONCE = 1000


def fan_out(limit: int = AT_ONCE) -> Statement[int]:
    """Convert the oldest events to deliveries, one for each matching subscription. Return how many events there were.

    The statement that creates the deliveries also removes the events from the outbox, so both happen exactly once. An
    event that commits late, with a lower number, is not missed, because no position is stored. A subscription receives
    every event committed after it, even if the statement that wrote the event began earlier.
    """
    return Statement(
        """
        with turn as materialized (
            select pg_try_advisory_xact_lock(%(order)s) as mine
        ), taken as (
            delete from holdfast.outbox where id = any(array(
                select outbox.id from holdfast.outbox where (select mine from turn)
                order by outbox.id limit %(limit)s))
            returning id, run_id, number, type, at, data, xid
        ), made as (
            insert into holdfast.deliveries (subscription_id, run_id, number, type, created_at, due_at, event)
            select subscriptions.id, taken.run_id, taken.number, taken.type, taken.at, holdfast.now(),
                   json_build_object(
                       'event', taken.type, 'run_id', taken.run_id, 'model', runs.task,
                       'status', taken.data ->> 'status', 'queue', runs.queue, 'attempt', greatest(taken.number, 0),
                       'payload_hash', encode(runs.payload_hash, 'hex'), 'job_id', runs.job_id,
                       'tags', coalesce(runs.tags, '{}'), 'created_at', runs.created_at, 'finished_at', taken.at,
                       'traceparent', runs.traceparent)
            from taken
            left join holdfast.runs on runs.id = taken.run_id
            join holdfast.subscriptions
              on (taken.at >= subscriptions.created_at
                  or not pg_visible_in_snapshot(taken.xid, subscriptions.since))
             and coalesce(subscriptions.filter::jsonb -> 'model' ? runs.task, true)
             and coalesce(subscriptions.filter::jsonb -> 'queue' ? runs.queue, true)
             and coalesce(subscriptions.filter::jsonb -> 'status' ? (taken.data ->> 'status'), true)
            order by taken.id, subscriptions.id
            on conflict on constraint deliveries_once do nothing
        )
        select count(*) from taken
        """,
        {"limit": limit, "order": _ORDER},
        count,
    )


class Backlog(NamedTuple):
    """The number of undelivered events, and the age of the oldest in seconds."""

    pending: int
    oldest_seconds: float


def backlog() -> Statement[Backlog]:
    """Return the backlog, without deliveries of paused subscriptions."""
    return Statement(
        """
        select count(*), coalesce(extract(epoch from holdfast.now() - min(waiting.at)), 0)::float8
        from (select at from holdfast.outbox
              union all
              select deliveries.created_at from holdfast.deliveries
              join holdfast.subscriptions on subscriptions.id = deliveries.subscription_id
              where deliveries.status = 'PENDING' and subscriptions.paused_at is null) as waiting (at)
        """,
        {},
        lambda found: Backlog(*found[0]),
    )
