"""Reading runs, without changing anything."""

from __future__ import annotations

from holdfast.domain.errors import ResultPruned, RunCancelled, RunFailed, RunNotFinished, RunNotFound
from holdfast.domain.records import AttemptRecord, EventRecord, ResultRecord
from holdfast.domain.states import Status
from holdfast.domain.values import RunRecord
from holdfast.sql import attempts as attempts_sql
from holdfast.sql import events as events_sql
from holdfast.sql import runs
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
