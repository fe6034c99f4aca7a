"""The history of a run, read in an order that shows whether more can follow."""

from __future__ import annotations

from holdfast.domain.records import EventRecord, LogRecord, Provenance
from holdfast.domain.values import RunRecord
from holdfast.ops.read import get
from holdfast.sql import attempts as attempts_sql
from holdfast.sql import events as events_sql
from holdfast.sql import logs as logs_sql
from holdfast.sql import provenance as provenance_sql
from holdfast.sql.statement import Op


def events_and_run(run_id: str, after: int = 0) -> Op[tuple[RunRecord, list[EventRecord]]]:
    """Return the run and its events. The run is read first: if it has ended, no events are missing."""
    run = yield from get(run_id)
    return run, (yield from events_sql.of_run(run_id, after))


def logs_and_run(run_id: str, after: int = 0, limit: int = 1000) -> Op[tuple[RunRecord, list[LogRecord]]]:
    """Return the run and its log lines. Only a live attempt adds lines: if the run has ended, none are missing."""
    run = yield from get(run_id)
    return run, (yield from logs_sql.of_run(run_id, after, limit))


def provenance_of(run_id: str) -> Op[Provenance]:
    run = yield from get(run_id)
    tried = yield from attempts_sql.of_run(run_id)
    workers = yield from provenance_sql.workers(run_id)
    result = yield from attempts_sql.result(run_id)
    return Provenance(run, tried, {worker.id: worker for worker in workers}, result)
