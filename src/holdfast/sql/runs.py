"""Runs, read: what was asked, joined with where the run is now."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.sql.statement import Row, Statement, count, each, first, plain_array

_COLUMNS = """
    select id::text, task, status, parameters::text, payload_hash, queue, priority, created_at, run_after, due_at,
           started_at, finished_at, attempt_count, max_attempts, reason, progress::text, error::text, result_ref,
           lease_owner::text, lease_expires_at, heartbeat_at, cancel_requested_at, job_id::text, parent_id::text,
           child_key, concurrency_key, submitted_by, tags
    from holdfast.run_status
"""


def _record(row: Row) -> RunRecord:
    error = orjson.loads(row[16]) if row[16] else None
    return RunRecord(
        id=row[0],
        task=row[1],
        status=Status(row[2]),
        parameters=orjson.loads(row[3]),
        payload_hash=row[4],
        queue=row[5],
        priority=row[6],
        created_at=row[7],
        run_after=row[8],
        due_at=row[9],
        started_at=row[10],
        finished_at=row[11],
        attempt_count=row[12],
        max_attempts=row[13],
        reason=row[14],
        progress=orjson.loads(row[15]) if row[15] else None,
        error=error,
        last_error=f"{error['class']}: {error['message']}" if error else None,
        result_ref=row[17],
        lease_owner=row[18],
        lease_expires_at=row[19],
        heartbeat_at=row[20],
        cancel_requested_at=row[21],
        job_id=row[22],
        parent_id=row[23],
        child_key=row[24],
        concurrency_key=row[25],
        submitted_by=row[26],
        tags=tuple(row[27] or ()),
    )


def read(run_id: str) -> Statement[RunRecord | None]:
    return Statement(_COLUMNS + "where id = %(run_id)s::uuid", {"run_id": run_id}, first(_record))


def read_many(run_ids: Sequence[str]) -> Statement[list[RunRecord]]:
    return Statement(
        _COLUMNS + "where id = any(%(run_ids)s::uuid[]) order by id desc",
        {"run_ids": plain_array(run_ids)},
        each(_record),
    )


def status(run_id: str) -> Statement[Status | None]:
    return Statement(
        "select status from holdfast.run_status where id = %(run_id)s::uuid",
        {"run_id": run_id},
        first(lambda row: Status(row[0])),
    )


# Where the ids of runs in one status are found, newest first.
_IDS: dict[str | None, str] = {
    None: "select id as run_id from holdfast.runs where id < %(before)s::uuid order by id desc",
    "PENDING": """
        select run_id from (select run_id from holdfast.ready where run_id < %(before)s::uuid
                            union all
                            select run_id from holdfast.waiting where run_id < %(before)s::uuid) as pending
        order by run_id desc""",
    "RUNNING": "select run_id from holdfast.leases where run_id < %(before)s::uuid order by run_id desc",
    "SUCCEEDED": """
        select run_id from holdfast.attempts where outcome is not null and reopened_at is null
        and run_id < %(before)s::uuid and outcome = 'SUCCEEDED' order by run_id desc""",
    "FAILED": """
        select run_id from holdfast.attempts where outcome = 'FAILED' and reopened_at is null
        and run_id < %(before)s::uuid order by run_id desc""",
    "CANCELLED": """
        select run_id from holdfast.attempts where outcome = 'CANCELLED' and reopened_at is null
        and run_id < %(before)s::uuid order by run_id desc""",
}
EVERYTHING = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def listing(
    *,
    status: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    tag: str | None = None,
    job_id: str | None = None,
    before: str = EVERYTHING,
    limit: int = 50,
) -> Statement[list[RunRecord]]:
    """Runs newest first, older than `before`; read by key, so a page costs the same however deep it lies."""
    return Statement(
        _COLUMNS
        + "where id = any(array(select found.run_id from ("
        + _IDS[status]
        + """) as found join holdfast.runs on runs.id = found.run_id
            where coalesce(runs.task = %(task)s, %(task)s::text is null)
              and coalesce(runs.queue = %(queue)s, %(queue)s::text is null)
              and (%(tag)s::text is null or %(tag)s = any(runs.tags))
              and (%(job_id)s::uuid is null or runs.job_id = %(job_id)s::uuid)
            order by found.run_id desc limit %(limit)s)) order by id desc""",
        {
            "task": task,
            "queue": queue,
            "tag": tag,
            "job_id": job_id,
            "before": before,
            "limit": limit,
        },
        each(_record),
    )


def live_between(low: str, high: str) -> Statement[int]:
    """How many runs with ids in this range have not ended."""
    return Statement(
        """
        select (select count(*) from holdfast.ready where run_id >= %(low)s::uuid and run_id < %(high)s::uuid)
             + (select count(*) from holdfast.waiting where run_id >= %(low)s::uuid and run_id < %(high)s::uuid)
             + (select count(*) from holdfast.leases where run_id >= %(low)s::uuid and run_id < %(high)s::uuid)
        """,
        {"low": low, "high": high},
        count,
    )
