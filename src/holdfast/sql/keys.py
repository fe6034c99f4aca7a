"""Idempotency keys: each maps a client's request to the run it made, until it expires."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.sql.statement import Statement, count, first


class KeyRecord(NamedTuple):
    run_id: str
    task: str
    payload_hash: str


def find(scope: str, key: str) -> Statement[KeyRecord | None]:
    return Statement(
        """
        select run_id::text, task, encode(payload_hash, 'hex') from holdfast.idempotency_keys
        where scope = %(scope)s and key = %(key)s
        """,
        {"scope": scope, "key": key},
        first(KeyRecord._make),
    )


def expire(limit: int) -> Statement[int]:
    """Delete keys past their time."""
    return Statement(
        """
        with gone as (
            delete from holdfast.idempotency_keys where ctid = any(array(
                select ctid from holdfast.idempotency_keys where expires_at <= holdfast.now()
                order by expires_at limit %(limit)s for update skip locked))
              and expires_at <= holdfast.now()
            returning key
        )
        select count(*) from gone
        """,
        {"limit": limit},
        count,
    )
