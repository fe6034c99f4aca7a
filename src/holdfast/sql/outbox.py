"""The outbox: events that were committed together with what they tell, on their way to deliveries."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.sql.statement import Statement, count

# Whoever fans out holds this for the length of its transaction, so that deliveries are numbered in one order.
_ORDER = 7_226_311_053


def fan_out(limit: int) -> Statement[int]:
    """Turn the oldest events into deliveries, one for each subscription that wants it; tells how many were turned.

    An event leaves the outbox in the statement that makes its deliveries: neither can happen twice or alone. One that
    was committed late, under a lower number, is found all the same, because nothing is remembered but what is left.
    A subscription wants what was committed after it, even if the ending's statement began before it.
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
    """What has not been delivered yet: events, and the age in seconds of the oldest."""

    pending: int
    oldest_seconds: float


def backlog() -> Statement[Backlog]:
    """How far publishing is behind, those of paused subscriptions left out."""
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
