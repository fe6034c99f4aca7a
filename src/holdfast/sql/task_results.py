"""A run as a framework's task result: the request, the outcome, and the workers of its attempts, in one statement."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import orjson

from holdfast.domain.records import ResultRecord
from holdfast.domain.states import Status
from holdfast.sql.runs import loaded
from holdfast.sql.statement import Row, Statement, first


class Failure(NamedTuple):
    """An attempt that failed or was lost; a lost one has no error."""

    status: str
    reason: str | None
    error: dict[str, Any] | None


class TaskResultRecord(NamedTuple):
    """`backend` is the name of the configuration that the run was submitted through; None if there was none."""

    id: str
    task: str
    status: Status
    queue: str
    priority: int
    created_at: datetime
    run_after: datetime | None
    finished_at: datetime | None
    reason: str | None
    parameters: Any
    backend: str | None
    result: ResultRecord | None
    first_attempt_at: datetime | None
    last_attempt_at: datetime | None
    workers: list[str]
    failures: list[Failure]


def _record(row: Row) -> TaskResultRecord:
    result = ResultRecord._make(row[11:15]) if row[11] is not None or row[12] is not None else None
    failures = [Failure(**one) for one in orjson.loads(row[18])] if row[18] else []
    asked = (*row[:2], Status(row[2]), *row[3:9], loaded(row[9]), row[10])
    return TaskResultRecord._make((*asked, result, *row[15:17], list(row[17] or ()), failures))


def read(run_id: str) -> Statement[TaskResultRecord | None]:
    """Workers are identified by the name they were started with, or else by their id."""
    return Statement(
        """
        select run.id::text, run.task, run.status, run.queue, run.priority, run.created_at, run.run_after,
               run.finished_at, run.reason, run.parameters::text, asked.policy ->> 'backend',
               ending.result::text, ending.result_ref, ending.result_size, encode(ending.result_sha256, 'hex'),
               tried.first_at, tried.last_at, tried.workers, tried.failures::text
        from holdfast.run_status as run
        join holdfast.runs as asked on asked.id = run.id
        left join holdfast.attempts as ending
               on ending.run_id = asked.id and ending.outcome = 'SUCCEEDED' and ending.reopened_at is null
        cross join lateral (
            select min(holdfast.readable(coalesce(tries.started_at, tries.claimed_at))) as first_at,
                   max(holdfast.readable(coalesce(tries.started_at, tries.claimed_at))) as last_at,
                   array_agg(case when workers.name <> workers.hostname || ':' || workers.pid
                                  then left(workers.name, 64) else tries.worker_id::text end
                             order by tries.number) as workers,
                   json_agg(json_build_object('status', tries.status, 'reason', tries.reason, 'error', tries.error)
                            order by tries.number) filter (where tries.status in ('FAILED', 'LOST')) as failures
            from (select attempts.number, attempts.worker_id, attempts.claimed_at, attempts.started_at,
                         attempts.status, attempts.reason, attempts.error
                  from holdfast.attempts where attempts.run_id = asked.id and attempts.number >= 1
                  union all
                  select leases.number, leases.worker_id, leases.claimed_at, leases.started_at, 'RUNNING', null, null
                  from holdfast.leases where leases.run_id = asked.id) as tries
            left join holdfast.workers on workers.id = tries.worker_id) as tried
        where asked.id = %(run_id)s::uuid
        """,
        {"run_id": run_id},
        first(_record),
    )
