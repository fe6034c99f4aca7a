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
    error = loaded(row[16])
    return RunRecord(
        id=row[0],
        task=row[1],
        status=Status(row[2]),
        parameters=loaded(row[3]),
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
        progress=loaded(row[15]),
        error=error,
        last_error=f"{error.get('class')}: {error.get('message')}" if isinstance(error, dict) else error,
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
    """Return these runs, newest first. Each is read by key: for all at once, the planner may read whole tables."""
    return Statement(
        "select listed.* from unnest(%(run_ids)s::uuid[]) as given (id) cross join lateral ("
        + _COLUMNS
        + "where run_status.id = given.id offset 0) as listed order by given.id desc",
        {"run_ids": plain_array(run_ids)},
        each(_record),
    )


def status(run_id: str) -> Statement[Status | None]:
    return Statement(
        "select status from holdfast.run_status where id = %(run_id)s::uuid",
        {"run_id": run_id},
        first(lambda row: Status(row[0])),
    )


EVERYTHING = "ffffffff-ffff-ffff-ffff-ffffffffffff"
