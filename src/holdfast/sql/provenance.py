"""The workers that executed a run, as long as they are stored: stopped workers are deleted after the retention."""

from __future__ import annotations

import orjson

from holdfast.domain.records import WorkerFacts
from holdfast.sql.statement import Row, Statement, each


def _facts(row: Row) -> WorkerFacts:
    return WorkerFacts(row[0], row[1], row[2], row[3], row[4], orjson.loads(row[5]) if row[5] else None)


def workers(run_id: str) -> Statement[list[WorkerFacts]]:
    return Statement(
        """
        select workers.id::text, workers.hostname, workers.pid, workers.executor, workers.version,
               workers.statistics::text
        from holdfast.workers where workers.id in (
            select attempts.worker_id from holdfast.attempts where attempts.run_id = %(run_id)s::uuid
            union all
            select leases.worker_id from holdfast.leases where leases.run_id = %(run_id)s::uuid)
        """,
        {"run_id": run_id},
        each(_facts),
    )
