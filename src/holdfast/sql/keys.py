"""Idempotency keys: each maps a client's request to the run or job that it created.

A key is kept until it expires, and after that for as long as its run or job exists.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from holdfast.sql.statement import Statement, count, first

# The value of `task` in the key of a job.
JOB = "(job)"


class KeyRecord(NamedTuple):
    """A stored key: `run_id` is the run or job that its request created."""

    run_id: str
    task: str
    payload_hash: str

    @property
    def made_job(self) -> bool:
        return self.task == JOB


class NewKey(NamedTuple):
    """A key to be stored: its owner, the id of the run or job to be created, and the request."""

    scope: str
    key: str
    made_id: str
    task: str
    payload_hash: str
    ttl: timedelta


def find(scope: str, key: str) -> Statement[KeyRecord | None]:
    return Statement(
        """
        select run_id::text, task, encode(payload_hash, 'hex') from holdfast.idempotency_keys
        where scope = %(scope)s and key = %(key)s
        """,
        {"scope": scope, "key": key},
        first(KeyRecord._make),
    )


def take(new: NewKey) -> Statement[int]:
    """Store a key. Return 0 if it already exists."""
    return Statement(
        """
        insert into holdfast.idempotency_keys (scope, key, run_id, payload_hash, task, created_at, expires_at)
        values (%(scope)s, %(key)s, %(made_id)s::uuid, decode(%(payload_hash)s, 'hex'), %(task)s,
                holdfast.now(), holdfast.now() + %(ttl)s::interval)
        on conflict (scope, key) do nothing
        returning key
        """,
        new._asdict(),
        len,
        together=True,
    )


def release(scope: str, key: str, run_id: str) -> Statement[int]:
    """Delete an expired key, for a caller that found no run or job with its id."""
    return Statement(
        """
        delete from holdfast.idempotency_keys
        where scope = %(scope)s and key = %(key)s and run_id = %(run_id)s::uuid and expires_at <= holdfast.now()
          and not exists (select from holdfast.jobs where jobs.id = idempotency_keys.run_id)
        returning key
        """,
        {"scope": scope, "key": key, "run_id": run_id},
        len,
    )


def expire(limit: int) -> Statement[int]:
    """Delete expired keys whose runs were pruned, or whose jobs are about to be."""
    return Statement(
        """
        with gone as (
            delete from holdfast.idempotency_keys where ctid = any(array(
                select keys.ctid from holdfast.pruned_ranges as pruned
                join holdfast.idempotency_keys as keys on keys.run_id between pruned.low and pruned.high
                where keys.expires_at <= holdfast.now()
                  and not exists (select from holdfast.runs where runs.id = keys.run_id)
                  and not exists (select from holdfast.jobs where jobs.id = keys.run_id
                                  and (jobs.finished_at is null
                                       or exists (select from holdfast.runs where runs.id
                                                  between holdfast.job_floor(jobs.id)
                                                      and holdfast.job_ceiling(jobs.id))))
                limit %(limit)s))
            returning key
        )
        select count(*) from gone
        """,
        {"limit": limit},
        count,
    )
