"""Reading runs: the submitted run joined with its current state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.sql.statement import Row, Statement, each, first, plain_array

_COLUMNS = """
    select id::text, task, status, parameters::text, payload_hash, queue, priority, created_at, run_after, due_at,
           started_at, finished_at, attempt_count, max_attempts, reason, progress::text, error::text, result_ref,
           lease_owner::text, lease_expires_at, heartbeat_at, cancel_requested_at, job_id::text, parent_id::text,
           child_key, concurrency_key, submitted_by, tags
    from holdfast.run_status
"""


def loaded(text: str | None) -> Any:
    """Parse a JSON column. Postgres can store some values that Python cannot parse; they are returned as text."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def _record(row: Row) -> RunRecord:
    """The columns are in the order of the record's fields, without `last_error`, which is derived from the error."""
    error = loaded(row[16])
    last_error = f"{error.get('class')}: {error.get('message')}" if isinstance(error, dict) else error
    begun = (*row[:2], Status(row[2]), loaded(row[3]), *row[4:15], loaded(row[15]), last_error, error)
    return RunRecord._make((*begun, *row[17:27], tuple(row[27] or ()), "", None))


def read(run_id: str) -> Statement[RunRecord | None]:
    return Statement(_COLUMNS + "where id = %(run_id)s::uuid", {"run_id": run_id}, first(_record))


def read_many(run_ids: Sequence[str]) -> Statement[list[RunRecord]]:
    """Return these runs, newest first. Each is read by key: for all at once, the planner may read whole tables."""
    return Statement(
        "select listed.* from unnest(%(run_ids)s::uuid[]) as given (id) cross join lateral ("
        + _COLUMNS
        + "where run_status.id = given.id offset 0) as listed order by given.id desc",
        {"run_ids": plain_array(run_ids)},
        each(_record),
    )


EVERYTHING = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def versions(ids: Sequence[str]) -> Statement[dict[str, str]]:
    """Return the version texts of the runs and jobs with these ids, by id; missing ones are left out."""
    return Statement(
        """
        select runs.id::text,
               row(ready.number, waiting.number, waiting.due_at, waiting.blockers, leases.number, leases.started_at,
                   leases.cancel_requested_at, leases.progress::text, workers.expires_at, ending.number,
                   (select max(logs.seq) from holdfast.logs where logs.run_id = runs.id),
                   (select count(*) from holdfast.events where events.run_id = runs.id))::text
        from unnest(%(ids)s::uuid[]) as given (id)
        join holdfast.runs on runs.id = given.id
        left join holdfast.ready on ready.run_id = runs.id
        left join holdfast.waiting on waiting.run_id = runs.id
        left join holdfast.leases on leases.run_id = runs.id
        left join holdfast.workers on workers.id = leases.worker_id
        left join holdfast.attempts as ending
               on ending.run_id = runs.id and ending.outcome is not null and ending.reopened_at is null
        union all
        select jobs.id::text,
               row(jobs.total, jobs.succeeded, jobs.failed, jobs.cancelled, jobs.started_at, jobs.finished_at,
                   jobs.deadline_at, jobs.cancel_requested_at)::text
        from holdfast.jobs where jobs.id = any(%(ids)s::uuid[])
        """,
        {"ids": plain_array(ids)},
        lambda found: {row[0]: row[1] for row in found},
    )
