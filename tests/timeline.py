"""Tests as timelines: who does what, and when.

    run = timeline.submit()
    claim = timeline.worker("a").claims(run)
    timeline.later(seconds=61)
    timeline.worker("b").takes(run)
    assert not timeline.worker("a").succeeds(claim).accepted

A timeline needs something that performs operations, on a database whose clock can be moved (`testing.clock`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import orjson

from holdfast import ops
from holdfast.domain.ids import new_id
from holdfast.domain.records import AttemptRecord, EventRecord, Reason
from holdfast.domain.settling import Failed, HandedBack, NotBegun, Outcome, Stopped, Succeeded, settle
from holdfast.domain.values import (
    Acknowledgement,
    AttemptRef,
    Claim,
    NewRun,
    Position,
    Renewal,
    RunRecord,
    Submitted,
    WorkerInfo,
)
from holdfast.sql import queues, workers
from holdfast.sql.statement import Op, Statement
from holdfast.testing import clock

T = TypeVar("T")

LEASE = timedelta(seconds=60)
ERROR = {"class": "Broken", "message": "it broke", "traceback": None}


class Performs(Protocol):
    """Runs an operation on a database, in a transaction if the operation needs one."""

    def perform(self, make_op: Callable[[], Op[T]]) -> T: ...


def new_run(parameters: object = None, **options: Any) -> NewRun:
    """Return a run with default values."""
    text = orjson.dumps({} if parameters is None else parameters, option=orjson.OPT_SORT_KEYS)
    defaults: dict[str, Any] = {"id": new_id(), "task": "work", "payload_hash": sha256(text).hexdigest()}
    return NewRun(**(defaults | {"parameters": text.decode()} | options))


class Worker:
    """A worker row. It does only what the test calls: if the test does not renew it, its leases expire."""

    def __init__(self, timeline: Timeline, info: WorkerInfo) -> None:
        self.id = info.id
        self._timeline = timeline
        self._perform = timeline.perform
        self._tasks = info.tasks
        self._perform(lambda: iter(workers.register(info)))

    def _known(self) -> Sequence[str]:
        """Return the tasks that this worker was registered with, or all tasks of the timeline's runs."""
        return self._tasks if self._tasks is not None else sorted(self._timeline.tasks)

    def claim(self, limit: int = 1, *queues: str, after: Claim | None = None) -> list[Claim]:
        """Claim up to `limit` runs from these queues, `default` if none is named, starting after the run of `after`."""
        positions = [Position(queue) for queue in queues or ("default",)]
        if after is not None:
            positions = [Position(after.queue, after.ord, after.rank_at, after.run_id)]
        return self._perform(lambda: ops.claim(self.id, positions, self._known(), limit))

    def claims(self, run: str, *queues: str) -> Claim:
        """Claim the next run, which must be this one."""
        claims = self.claim(1, *queues)
        if [claim.run_id for claim in claims] != [run]:
            raise AssertionError(f"expected run {run}, got {claims}")
        return claims[0]

    def take(self, run: str) -> Claim | None:
        """Claim this run by its id, if possible."""
        return self._perform(lambda: ops.claim_by_id(self.id, run, self._known(), 0.5))

    def takes(self, run: str) -> Claim:
        claim = self.take(run)
        if claim is None:
            raise AssertionError(f"run {run} could not be claimed; it is {self._timeline.get(run)}")
        return claim

    def take_over(self, ref: AttemptRef, claimed_by: Worker, **details: Any) -> Claim | None:
        """Take over the lease of an attempt from the worker that claimed it, if possible."""
        return self._perform(lambda: ops.take_over(self.id, ref, claimed_by.id, executor="ray_job", details=details))

    def takes_over(self, ref: AttemptRef, claimed_by: Worker, **details: Any) -> Claim:
        claim = self.take_over(ref, claimed_by, **details)
        if claim is None:
            raise AssertionError(f"attempt {ref} could not be taken over; {self._timeline.events(ref.run_id)}")
        return claim

    def renew(self) -> Renewal:
        return self._perform(lambda: ops.renew(self.id))

    def finish(self, claim: Claim, outcome: Outcome, **changes: Any) -> Acknowledgement:
        settlement = settle(claim, outcome, 0.5)._replace(**changes)
        return self._perform(lambda: ops.finish(self.id, [settlement]))[0]

    def succeeds(self, claim: Claim, result: str = '"done"') -> Acknowledgement:
        return self.finish(claim, Succeeded(result=result))

    def fails(self, claim: Claim, *, retryable: bool = True, reason: str | None = None) -> Acknowledgement:
        return self.finish(claim, Failed(ERROR, retryable=retryable, reason=reason))

    def stops(self, claim: Claim) -> Acknowledgement:
        return self.finish(claim, Stopped())

    def hands_back(self, claim: Claim) -> Acknowledgement:
        return self.finish(claim, HandedBack())

    def releases(self, claim: Claim) -> Acknowledgement:
        return self.finish(claim, NotBegun())

    def drain(self) -> int:
        return self._perform(lambda: iter(workers.drain(self.id)))

    def deregister(self, *, settled: bool = False) -> None:
        self._perform(lambda: iter(workers.deregister(self.id, settled=settled)))


class Timeline:
    """A sequence of actions of clients and workers, with a clock that the test moves."""

    def __init__(self, driver: Performs, connection: clock.Executes) -> None:
        self._driver = driver
        self._connection = connection
        self._workers: dict[str, Worker] = {}
        self.tasks: set[str] = {"work"}
        clock.install(connection)

    # Time.

    def now(self) -> datetime:
        now: datetime = self._connection.execute("select holdfast.now()").fetchone()[0]
        return now

    def later(self, **by: float) -> None:
        """Let time pass: `later(minutes=5)`."""
        clock.move(self._connection, timedelta(**by))

    def at(self, clock_time: str) -> None:
        """Let time pass until it is next this time of the day, in UTC: `at("10:00")`."""
        now = self.now()
        target = datetime.combine(now.date(), time.fromisoformat(clock_time), now.tzinfo)
        if target < now:
            target += timedelta(days=1)
        clock.move(self._connection, target - now)

    # Actors.

    def perform(self, make_op: Callable[[], Op[T]]) -> T:
        return self._driver.perform(make_op)

    def ask(self, statement: Statement[T]) -> T:
        """Run a single statement."""
        return self.perform(lambda: iter(statement))

    def worker(self, name: str, *, lease: timedelta = LEASE, **options: Any) -> Worker:
        """Return the worker with this name; it registers on first use."""
        if name not in self._workers:
            info = WorkerInfo(new_id(), "host", 1, name, "inline", "0", options.pop("slots", 1), lease, **options)
            self._workers[name] = Worker(self, info)
        return self._workers[name]

    # Requests.

    def submit(self, parameters: object = None, **options: Any) -> str:
        """Submit a run and return its id."""
        return self.submitted(parameters, **options).run.id

    def submitted(self, parameters: object = None, **options: Any) -> Submitted:
        new = new_run(parameters, **options)
        self.tasks.add(new.task)
        return self.perform(lambda: ops.submit(new))

    def cancel(self, run: str, reason: str = "no longer needed") -> RunRecord:
        return self.perform(lambda: ops.cancel(run, reason))

    def retry(self, run: str, by: str = "ada") -> RunRecord:
        return self.perform(lambda: ops.retry(run, by))

    def rescue(self) -> list[Acknowledgement]:
        """Rescue all orphans, each in its own transaction."""
        orphans = self.perform(lambda: ops.find_orphans(500))
        return [ack for orphan in orphans for ack in self.perform(lambda o=orphan: ops.rescue([o], 0.5))]  # type: ignore[misc]

    def promote(self) -> int:
        return self.perform(lambda: ops.promote(1000))[0]

    def pause(self, queue: str, by: str = "ada", reason: str | None = None) -> None:
        self.ask(queues.pause(queue, by, reason))

    def resume(self, queue: str) -> None:
        self.ask(queues.resume(queue))

    # Reads.

    def get(self, run: str) -> RunRecord:
        return self.perform(lambda: ops.get(run))

    def status(self, run: str) -> str:
        return str(self.get(run).status)

    def events(self, run: str, after: int = 0) -> list[EventRecord]:
        return self.perform(lambda: ops.events(run, after))

    def story(self, run: str) -> str:
        """Return the types of a run's events, in one line."""
        return " ".join(event.type for event in self.events(run))

    def attempts(self, run: str) -> list[AttemptRecord]:
        return self.perform(lambda: ops.attempts(run))

    def why(self, run: str) -> Sequence[Reason]:
        return self.perform(lambda: ops.explain(run))
