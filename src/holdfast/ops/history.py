"""Reading a run, its result and its history, in an order that shows whether the history is complete."""

from __future__ import annotations

from holdfast.domain.errors import ResultPruned, RunCancelled, RunFailed, RunNotFinished, RunNotFound
from holdfast.domain.records import AttemptRecord, EventRecord, LogRecord, Provenance, ResultRecord
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.sql import attempts as attempts_sql
from holdfast.sql import events as events_sql
from holdfast.sql import logs as logs_sql
from holdfast.sql import runs, workers
from holdfast.sql.statement import Op


def get(run_id: str) -> Op[RunRecord]:
    run = yield from runs.read(run_id)
    if run is None:
        raise RunNotFound(f"no run has the id {run_id}")
    return run


def result(run_id: str) -> Op[ResultRecord]:
    """Return where the result is. Raises an error that says why there is none."""
    run = yield from get(run_id)
    match run.status:
        case Status.SUCCEEDED:
            found = yield from attempts_sql.result(run_id)
            if found is None:
                raise ResultPruned(f"the result of run {run_id} was removed after its retention period")
            return found
        case Status.FAILED:
            raise RunFailed(f"run {run_id} failed: {run.last_error}", run.error)
        case Status.CANCELLED:
            raise RunCancelled(f"run {run_id} was cancelled: {run.reason}")
        case _:
            raise RunNotFinished(f"run {run_id} is {run.status}; it has no result yet")


def attempts(run_id: str) -> Op[list[AttemptRecord]]:
    yield from get(run_id)
    return (yield from attempts_sql.of_run(run_id))


def events(run_id: str, after: int = 0) -> Op[list[EventRecord]]:
    yield from get(run_id)
    return (yield from events_sql.of_run(run_id, after))


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
    executed_by = yield from workers.of_run(run_id)
    result = yield from attempts_sql.result(run_id)
    return Provenance(run, tried, {worker.id: worker for worker in executed_by}, result)
