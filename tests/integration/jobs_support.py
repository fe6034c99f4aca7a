"""A stage for timelines of jobs: one connection, a worker controlled by the test, and a consistency check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import ops
from holdfast.domain.canonical import canonicalize
from holdfast.domain.ids import derived_id, new_id, series
from holdfast.domain.jobs import NewJob, NewMap, Slice
from holdfast.domain.settling import Failed, Outcome, Stopped, Succeeded, settle
from holdfast.domain.states import Status
from holdfast.domain.values import Claim, Dependency, NewRun, Position, Settlement, Submitted, WorkerInfo
from holdfast.drivers import psycopg as driver
from holdfast.ops.create import FIRST_TASKS
from holdfast.sql import jobs, ready, workers

ERROR = {"class": "ValueError", "message": "no", "traceback": None}


def new_run(id_: str | None = None, *, on: Sequence[Any] = (), parameters: Any = None, **fields: Any) -> NewRun:
    text, payload_hash = canonicalize(parameters or {})
    edges = tuple(edge if isinstance(edge, Dependency) else Dependency(edge) for edge in on)
    fields = {"id": id_ or new_id(), "task": "noop", "depends_on": edges} | fields
    return NewRun(parameters=text, payload_hash=payload_hash, **fields)


@dataclass
class Stage:
    """A worker controlled by the test, on its own connection."""

    url: str
    lease: float = 600.0
    worker: str = field(default_factory=new_id)

    def __post_init__(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=True)
        info = WorkerInfo(self.worker, "host", 1, "hand", "inline", "0", 1, timedelta(seconds=self.lease))
        self.do(lambda: iter(workers.register(info)))  # type: ignore[arg-type,return-value]

    def do(self, make_op: Any) -> Any:
        return driver.transact(self.connection, make_op)

    def close(self) -> None:
        self.connection.close()

    def submit(self, *new: NewRun) -> list[Submitted]:
        return self.do(lambda: ops.submit_many(new))  # type: ignore[no-any-return]

    def claim(self, limit: int = 1000, queue: str = "default") -> list[Claim]:
        tasks = {task for _, task in self.do(lambda: iter(ready.by_task()))}  # type: ignore[arg-type,return-value]
        return self.do(lambda: ops.claim(self.worker, [Position(queue)], sorted(tasks), limit))  # type: ignore[no-any-return]

    def end(self, claims: Sequence[Claim], outcome: Outcome | None = None) -> Any:
        settlements = [settle(claim, outcome or Succeeded("null"), 0.5) for claim in claims]
        return self.finish(settlements)

    def finish(self, settlements: Sequence[Settlement]) -> Any:
        return self.do(lambda: ops.finish(self.worker, settlements))

    def fail(self, claims: Sequence[Claim]) -> Any:
        return self.end(claims, Failed(ERROR, retryable=False))

    def stop(self, claims: Sequence[Claim]) -> Any:
        return self.end(claims, Stopped())

    def drain(self, limit: int = 1000) -> list[str]:
        """Run everything that can run, successfully. Return the order."""
        order = []
        while claims := self.claim(limit):
            order += [claim.run_id for claim in claims]
            self.end(claims)
        return order

    def status(self, run_id: str) -> str:
        return str(self.do(lambda: ops.get(run_id)).status)

    def reason(self, run_id: str) -> str:
        return str(self.do(lambda: ops.get(run_id)).reason)

    def statuses(self, *run_ids: str) -> list[str]:
        return [self.status(run_id) for run_id in run_ids]

    def rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, params).fetchall()  # type: ignore[arg-type]

    def job(self, *tasks: NewRun, name: str = "job", **fields: Any) -> str:
        """Create a job with these runs, which get ids of that job."""
        id_ = fields.pop("id", None) or new_id()
        ids = series(id_, FIRST_TASKS, len(tasks), first=True)
        new_ids = {task.id: id_ for task, id_ in zip(tasks, ids, strict=True)}
        first = [
            replace(
                task,
                id=new_ids[task.id],
                job_id=id_,
                depends_on=tuple(Dependency(new_ids.get(on, on), policy) for on, policy in task.depends_on),
            )
            for task in tasks
        ]
        self.do(lambda: ops.create_job(NewJob(id_, name, **fields), first))
        if not tasks:
            self.do(lambda: iter(jobs.stop_holding(id_)))  # type: ignore[arg-type,return-value]
        return id_

    def add(self, job_id: str, *tasks: NewRun, by: Any = None) -> list[Submitted]:
        made = [replace(task, id=derived_id(job_id, task.id), job_id=job_id) for task in tasks]
        return self.do(lambda: ops.add_tasks(made, by))  # type: ignore[no-any-return]

    def map(self, job_id: str, total: int, key: str = "map") -> str:
        """Create a map whose runs have their number as a parameter."""
        id_ = derived_id(job_id, key)
        head = replace(new_run(), job_id=job_id, map_id=id_)
        slices = [Slice(*canonicalize({"n": n})) for n in range(total)]
        self.do(lambda: ops.add_map(NewMap(id_, job_id, None, "{}", total), head, lambda _: slices, None, None))
        return id_

    def stop_job(self, job_id: str, reason: str = "enough") -> list[str]:
        job = self.do(lambda: ops.stop_job(job_id, Status.CANCELLED, reason))
        workers = []
        while True:
            step = self.do(lambda: ops.stop_some(job_id, job.reason))
            workers += step.workers
            if step.done:
                return workers

    def get_job(self, job_id: str) -> Any:
        return self.do(lambda: ops.get_job(job_id))

    def tasks(self, job_id: str) -> list[str]:
        return self.do(lambda: iter(jobs.task_ids(job_id, None, 100_000)))  # type: ignore[no-any-return,arg-type,return-value]


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    """A stage whose database must be consistent after the test."""
    stage = Stage(database_url)
    yield stage
    assert disagreements(stage.connection) == []
    stage.close()


def disagreements(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Return everything in the database that is inconsistent with the rows of the runs."""
    found = []
    for name, query in CHECKS.items():
        found += [(name, *row) for row in connection.execute(query).fetchall()]  # type: ignore[arg-type]
    return found


CHECKS = {
    "counters of a job": """
        select jobs.id::text, jobs.total, jobs.succeeded, jobs.failed, jobs.cancelled, actual.*
        from holdfast.jobs cross join lateral (
            select count(*), count(*) filter (where status = 'SUCCEEDED'), count(*) filter (where status = 'FAILED'),
                   count(*) filter (where status = 'CANCELLED')
            from holdfast.run_status where job_id = jobs.id) as actual (total, succeeded, failed, cancelled)
        where (jobs.total, jobs.succeeded, jobs.failed, jobs.cancelled)
           <> (actual.total, actual.succeeded, actual.failed, actual.cancelled)""",
    "a job that should have ended, or should not": """
        select id::text, total, outcome from holdfast.jobs
        where total > 0 and (outcome is not null) <> not exists (
            select from holdfast.run_status where job_id = jobs.id and status in ('PENDING', 'RUNNING'))""",
    "a job that was stopped and ended otherwise": """
        select id::text, outcome, stop_outcome from holdfast.jobs where outcome <> stop_outcome""",
    "a run that nothing prevents from starting": """
        select ended.run_id::text from holdfast.attempts as ended
        where ended.outcome = 'CANCELLED' and ended.reopened_at is null and ended.details ->> 'unreachable' is not null
          and exists (select from holdfast.dependencies where dependencies.run_id = ended.run_id)
          and not exists (select from holdfast.dependencies where dependencies.run_id = ended.run_id
                          and not coalesce(holdfast.meets(holdfast.ending_of(on_id), policy), true))""",
    "a job that runs and has not started": """
        select id::text from holdfast.jobs
        where started_at is null and id not in (select job_id from holdfast.late_starts) and (
            exists (select from holdfast.leases where leases.job_id = jobs.id)
            or exists (select from holdfast.runs join holdfast.attempts on attempts.run_id = runs.id
                       where runs.job_id = jobs.id and attempts.number >= 1))""",
    "counters of a map": """
        select maps.id::text, maps.total, maps.open, maps.unsuccessful, actual.*
        from holdfast.maps cross join lateral (
            select count(*), count(*) filter (where run_status.status in ('PENDING', 'RUNNING')),
                   count(*) filter (where run_status.status in ('FAILED', 'CANCELLED'))
            from holdfast.runs join holdfast.run_status on run_status.id = runs.id
            where runs.map_id = maps.id) as actual (total, open, unsuccessful)
        where (maps.total, maps.open, maps.unsuccessful) <> (actual.total, actual.open, actual.unsuccessful)""",
    "blockers of a run": """
        select waiting.run_id::text, waiting.blockers, actual.open from holdfast.waiting cross join lateral (
            select count(*) filter (where holdfast.ending_of(on_id) is null) as open
            from holdfast.dependencies where dependencies.run_id = waiting.run_id) as actual
        where waiting.reason = 'dependencies' and waiting.blockers <> actual.open""",
    "a run that waits in vain": """
        select waiting.run_id::text, on_id::text, policy, holdfast.ending_of(on_id)
        from holdfast.waiting join holdfast.dependencies on dependencies.run_id = waiting.run_id
        where waiting.blockers > 0 and not holdfast.meets(holdfast.ending_of(on_id), policy)""",
    "a run that started before its time": """
        select attempts.run_id::text, on_id::text, policy from holdfast.attempts
        join holdfast.dependencies on dependencies.run_id = attempts.run_id
        left join holdfast.attempts as awaited on awaited.run_id = on_id
             and awaited.outcome is not null and holdfast.meets(awaited.outcome, policy)
             and awaited.finished_at <= attempts.claimed_at
        where attempts.number >= 1 and awaited.run_id is null
          and not exists (select from holdfast.maps where maps.id = on_id)""",
    "a join that started before its map had ended": """
        select attempts.run_id::text, member.id::text from holdfast.attempts
        join holdfast.dependencies on dependencies.run_id = attempts.run_id and dependencies.policy = 'success'
        join holdfast.runs as member on member.map_id = dependencies.on_id
        join holdfast.attempts as ended on ended.run_id = member.id and ended.outcome is not null
             and ended.reopened_at is null
        where attempts.number >= 1 and attempts.outcome is not null and attempts.reopened_at is null
          and (attempts.claimed_at < ended.finished_at or ended.outcome <> 'SUCCEEDED')""",
    "a run that is nowhere": "select id::text, task from holdfast.run_status where status is null",
}
