"""Finding runs with the same task and the same payload.

Only runs that take part in deduplication are found, not those submitted with `dedupe="off"`.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.sql.statement import Statement, first


def hold(task: str, payload_hash: str) -> Statement[str]:
    """Lock this payload until the transaction ends. Return the transaction's isolation level."""
    return Statement(
        """
        select current_setting('transaction_isolation')
        from pg_advisory_xact_lock(hashtextextended(%(task)s || ' ' || %(payload_hash)s, 7))
        """,
        {"task": task, "payload_hash": payload_hash},
        lambda found: str(found[0][0]),
        together=True,
    )


def active(task: str, payload_hash: str, within: timedelta) -> Statement[str | None]:
    """Return the newest PENDING or RUNNING run with this payload that was created within the window."""
    return Statement(
        """
        select runs.id::text from holdfast.runs
        where runs.payload_hash = decode(%(payload_hash)s, 'hex') and runs.task = %(task)s and runs.deduplicates
          and runs.created_at > holdfast.now() - %(within)s::interval
          and (exists (select from holdfast.ready where ready.run_id = runs.id)
               or exists (select from holdfast.waiting where waiting.run_id = runs.id)
               or exists (select from holdfast.leases where leases.run_id = runs.id
                          and leases.cancel_requested_at is null))
        order by runs.created_at desc, runs.id desc limit 1
        """,
        {"task": task, "payload_hash": payload_hash, "within": within},
        first(lambda row: str(row[0])),
    )


def recent(task: str, payload_hash: str, within: timedelta) -> Statement[str | None]:
    """Return the newest run with this payload, created within the window, that neither failed nor was cancelled."""
    return Statement(
        """
        select runs.id::text from holdfast.runs
        where runs.payload_hash = decode(%(payload_hash)s, 'hex') and runs.task = %(task)s and runs.deduplicates
          and runs.created_at > holdfast.now() - %(within)s::interval
          and not exists (select from holdfast.attempts where attempts.run_id = runs.id
                          and attempts.outcome in ('FAILED', 'CANCELLED') and attempts.reopened_at is null)
          and not exists (select from holdfast.leases where leases.run_id = runs.id
                          and leases.cancel_requested_at is not null)
        order by runs.created_at desc, runs.id desc limit 1
        """,
        {"task": task, "payload_hash": payload_hash, "within": within},
        first(lambda row: str(row[0])),
    )
